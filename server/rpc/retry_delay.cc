#include "server/rpc/retry_delay.h"

#include <new>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"

namespace attend {

absl::Duration RetryDelay() {
  thread_local absl::InsecureBitGen generator;
  return absl::Milliseconds(absl::Uniform(absl::IntervalClosed, generator, 50, 150));
}

void AddPushback(const grpc::Status& status, absl::Duration retry_delay,
                 grpc::ServerContextBase& context) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return;
  try {
    context.AddTrailingMetadata("grpc-retry-pushback-ms",
                                absl::StrCat(absl::ToInt64Milliseconds(retry_delay)));
  } catch (const std::bad_alloc&) {
    // The answer goes without it.
  }
}

}  // namespace attend

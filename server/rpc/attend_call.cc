#include "server/rpc/attend_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace attend {

AttendCall::AttendCall(const AttentionServiceOptions& options, grpc::CallbackServerContext* context,
                       grpc::ByteBuffer* response)
    : AttendJob(options, Method::kAttend),
      options_(options),
      context_(context),
      response_(response) {}

void AttendCall::Start(grpc::ByteBuffer& request) {
  const CallFacts facts = CallFacts::Of(*context_, options_);
  if (facts.trace.has_value()) {
    context_->AddTrailingMetadata(kTraceMetadata, AnswerTraceParent(*facts.trace));
  }
  AttendJob::Start(Read(request), facts);
}

void AttendCall::OnAnswer(AttendAnswer& answer) {
  if (answer.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
    context_->AddTrailingMetadata("grpc-retry-pushback-ms",
                                  absl::StrCat(absl::ToInt64Milliseconds(answer.retry_delay)));
  }
  response_->Swap(&answer.message);
  Finish(std::move(answer.status));  // gRPC may destroy this now
}

}  // namespace attend

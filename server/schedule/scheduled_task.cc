#include "server/schedule/scheduled_task.h"

namespace attend {

absl::Status GivenUp(absl::StatusCode reason) {
  switch (reason) {
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError("the request's time ran out before its answer was ready");
    case absl::StatusCode::kCancelled:
      return absl::CancelledError("the caller gave the request up");
    default:
      return absl::UnavailableError("the server is shutting down; try another one");
  }
}

absl::Status NoMemory() {
  return absl::ResourceExhaustedError("the server is short of memory; try again later");
}

}  // namespace attend

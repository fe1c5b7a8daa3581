#include "server/schedule/scheduled_task.h"

namespace attend {

absl::Status GivenUp(DropReason reason) {
  switch (reason) {
    case DropReason::kDeadline:
      return absl::DeadlineExceededError("the request's time ran out before its answer was ready");
    case DropReason::kCancelled:
      return absl::CancelledError("the caller gave the request up");
    case DropReason::kQueueFull:
      return absl::ResourceExhaustedError("the server is full; try again later");
    case DropReason::kDisplaced:
      return absl::ResourceExhaustedError(
          "the server is full, and more urgent requests took this one's place; try again later");
    case DropReason::kNoMemory:
      return NoMemory();
    case DropReason::kDraining:
      break;
  }
  return absl::UnavailableError("the server is shutting down; try another one");
}

absl::Status NoMemory() {
  return absl::ResourceExhaustedError("the server is short of memory; try again later");
}

}  // namespace attend

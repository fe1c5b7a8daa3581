#include "server/schedule/scheduled_task.h"

#include <new>

namespace attend {

namespace {

absl::StatusCode CodeOf(DropReason reason) {
  switch (reason) {
    case DropReason::kDeadline:
      return absl::StatusCode::kDeadlineExceeded;
    case DropReason::kCancelled:
      return absl::StatusCode::kCancelled;
    case DropReason::kQueueFull:
    case DropReason::kDisplaced:
    case DropReason::kNoMemory:
      return absl::StatusCode::kResourceExhausted;
    case DropReason::kDraining:
      break;
  }
  return absl::StatusCode::kUnavailable;
}

const char* WordsOf(DropReason reason) {
  switch (reason) {
    case DropReason::kDeadline:
      return "the request's time ran out before its answer was ready";
    case DropReason::kCancelled:
      return "the caller gave the request up";
    case DropReason::kQueueFull:
      return "the server is full; try again later";
    case DropReason::kDisplaced:
      return "the server is full, and more urgent requests took this one's place; try again later";
    case DropReason::kNoMemory:
      return "the server is short of memory; try again later";
    case DropReason::kDraining:
      break;
  }
  return "the server is shutting down; try another one";
}

}  // namespace

absl::Status GivenUp(DropReason reason) noexcept {
  try {
    return absl::Status(CodeOf(reason), WordsOf(reason));
  } catch (const std::bad_alloc&) {
    return absl::Status(CodeOf(reason), "");  // a code alone needs none
  }
}

absl::Status NoMemory() noexcept { return GivenUp(DropReason::kNoMemory); }

}  // namespace attend

// What the two halves of the scheduler share: scheduler.cc admits, scheduler_batch.cc computes.
#ifndef ATTEND_SERVER_SCHEDULE_SCHEDULER_INTERNAL_H_
#define ATTEND_SERVER_SCHEDULE_SCHEDULER_INTERNAL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/attention/attention.h"
#include "core/executor/executor.h"
#include "server/schedule/scheduler.h"

namespace attend {

// Why a task was given up, in words for its caller.
inline absl::Status GivenUp(absl::StatusCode reason) {
  switch (reason) {
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError("the request's time ran out before its answer was ready");
    case absl::StatusCode::kCancelled:
      return absl::CancelledError("the caller gave the request up");
    default:
      return absl::UnavailableError("the server is shutting down; try another one");
  }
}

inline absl::Status NoMemory() {
  return absl::ResourceExhaustedError("the server is short of memory; try again later");
}

struct Scheduler::Entry {
  std::unique_ptr<AttentionTask> task;
  TaskId id = 0;
  std::int64_t bytes = 0;  // that count towards max_queued_bytes
  std::int64_t flops = 0;
  AttentionOutputs outputs;
  std::unique_ptr<TileJob> job;
  absl::Time started = absl::InfiniteFuture();
  int batch_size = 0;
  // Why the job shall stop; kOk while it shall not. The first reason stays.
  std::atomic<absl::StatusCode> stop_reason{absl::StatusCode::kOk};

  void RequestStop(absl::StatusCode reason) {
    absl::StatusCode expected = absl::StatusCode::kOk;
    stop_reason.compare_exchange_strong(expected, reason);
  }

  // Why a caller who leaves at `now` left: gRPC reports a passed deadline as a cancellation.
  absl::StatusCode ReasonToLeave(absl::Time now) const {
    return now >= task->deadline ? absl::StatusCode::kDeadlineExceeded
                                 : absl::StatusCode::kCancelled;
  }
};

struct Scheduler::Batch {
  std::vector<Entry*> entries;    // owned by running_requests_ until they finish
  std::vector<EntryPtr> expired;  // to be answered without compute
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_SCHEDULER_INTERNAL_H_

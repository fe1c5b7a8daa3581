// A task that was admitted, on its way through the scheduler.
#ifndef ATTEND_SERVER_SCHEDULE_SCHEDULED_TASK_H_
#define ATTEND_SERVER_SCHEDULE_SCHEDULED_TASK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/attention/attention.h"
#include "core/executor/tile_job.h"
#include "server/schedule/attention_task.h"

namespace attend {

// How a task is scheduled. Those of one size wait in a queue of their own, so that none waits for
// what a larger one waits for.
enum class TaskSize : std::uint8_t {
  kSmall,   // computed in a group
  kMedium,  // in tiles; little working memory
  kLarge,   // in tiles
};
inline constexpr std::size_t kNumTaskSizes = 3;

struct ScheduledTask {
  std::unique_ptr<AttentionTask> task;
  TaskId id = 0;
  std::int64_t bytes = 0;          // that count towards max_queued_bytes
  std::int64_t working_bytes = 0;  // of these: of the kernel
  std::int64_t flops = 0;
  double cost = 0;  // of compute, see ComputeCost
  TaskSize size = TaskSize::kSmall;
  AttentionOutputs outputs;
  std::unique_ptr<TileJob> job;
  // Set by the worker that computes first; meant for the one that finishes.
  std::atomic<bool> begun{false};
  absl::Time started;
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

// By id, which is the order of arrival. Tasks go from one to another as nodes, so that nothing can
// fail in between.
using ScheduledTaskMap = std::map<TaskId, std::unique_ptr<ScheduledTask>>;

// Why a task was given up, in words for its caller.
absl::Status GivenUp(absl::StatusCode reason);

absl::Status NoMemory();

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_SCHEDULED_TASK_H_

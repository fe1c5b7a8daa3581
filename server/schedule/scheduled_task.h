// A task that was admitted, on its way through the scheduler.
#ifndef ATTEND_SERVER_SCHEDULE_SCHEDULED_TASK_H_
#define ATTEND_SERVER_SCHEDULE_SCHEDULED_TASK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/attention/attention.h"
#include "core/executor/tile_job.h"
#include "server/observe/metrics.h"
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
  double cost = 0;              // of compute, see ComputeCost
  std::atomic<double> done{0};  // of that; of a small one it is not told
  double recorded = 0;          // of what is done: by the pace; guarded by the scheduler's mutex
  TaskSize size = TaskSize::kSmall;
  AttentionOutputs outputs;
  std::unique_ptr<TileJob> job;
  // Set by the worker that computes first; meant for the one that finishes.
  std::atomic<bool> begun{false};
  absl::Time started;
  int batch_size = 0;
  // A DropReason, or kGoesOn.
  std::atomic<int> stop_reason{kGoesOn};

  static constexpr int kGoesOn = -1;

  // Of several reasons the first stays.
  void RequestStop(DropReason reason) {
    int expected = kGoesOn;
    stop_reason.compare_exchange_strong(expected, static_cast<int>(reason));
  }

  // Why the job shall stop; none while it shall not.
  std::optional<DropReason> StopReason() const {
    const int reason = stop_reason.load(std::memory_order_relaxed);
    if (reason == kGoesOn) return std::nullopt;
    return static_cast<DropReason>(reason);
  }

  // Why a caller who leaves at `now` left: gRPC reports a passed deadline as a cancellation.
  DropReason ReasonToLeave(absl::Time now) const {
    return now >= task->deadline ? DropReason::kDeadline : DropReason::kCancelled;
  }
};

// By id, which is the order of arrival. Tasks go from one to another as nodes, so that nothing can
// fail in between.
using ScheduledTaskMap = std::map<TaskId, std::unique_ptr<ScheduledTask>>;

// Why a task was not computed, or not to its end, in words for its caller; without words where
// there is no memory for them. Throws nothing: what is given up must get its answer, and who gives
// it up is a worker, the timer, or a caller whose own task is admitted already.
absl::Status GivenUp(DropReason reason) noexcept;

absl::Status NoMemory() noexcept;

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_SCHEDULED_TASK_H_

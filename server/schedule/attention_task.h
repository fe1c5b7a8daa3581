// What the scheduler is given, and what it says of it.
#ifndef ATTEND_SERVER_SCHEDULE_ATTENTION_TASK_H_
#define ATTEND_SERVER_SCHEDULE_ATTENTION_TASK_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/attention/attention.h"
#include "core/base/attention_problem.h"

namespace attend {

// In the order in which they are taken.
enum class Priority : std::uint8_t { kHigh, kNormal, kLow };
inline constexpr std::size_t kNumPriorities = 3;

// What happened to a task.
struct TaskStats {
  absl::Duration queue;    // from arrival to the start of compute, or to the end if never computed
  absl::Duration compute;  // from the start of compute to its end; 0 if never computed
  int batch_size = 0;      // requests in compute when it started, itself included; 0 if never
};

// One request for the scheduler.
struct AttentionTask {
  // The memory behind its views must live until on_done is called.
  AttentionProblem problem;
  Priority priority = Priority::kNormal;
  // When it reached the server and when its answer loses its worth, both on the scheduler's clock.
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();
  // Size of the request's and the response's message, which both stay in memory meanwhile.
  std::int64_t message_bytes = 0;
  // Makes the memory for the results, once the task is admitted; called inside Submit. Its error is
  // Submit's.
  std::function<absl::StatusOr<AttentionOutputs>()> allocate_outputs;
  // Called exactly once for a task that Submit took, from any thread, perhaps before Submit has
  // returned. Must not block nor throw. OK: the outputs are written. CANCELLED, DEADLINE_EXCEEDED,
  // UNAVAILABLE (the server drains), RESOURCE_EXHAUSTED (no memory, or displaced by more
  // urgent tasks) or INTERNAL otherwise.
  std::function<void(absl::Status status, const TaskStats& stats)> on_done;
};

// Names a task that Submit took. Never 0, never reused.
using TaskId = std::uint64_t;

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_ATTENTION_TASK_H_

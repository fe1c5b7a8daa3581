// The bounded queue of requests, and the batcher that computes them.
//
// How it works is told in server/schedule/README.md.
#ifndef ATTEND_SERVER_SCHEDULE_SCHEDULER_H_
#define ATTEND_SERVER_SCHEDULE_SCHEDULER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/attention/attention.h"
#include "core/base/attention_problem.h"
#include "core/executor/executor.h"
#include "server/observe/metrics.h"
#include "server/schedule/clock.h"

namespace attend {

// In the order in which they are taken.
enum class Priority : std::uint8_t { kHigh, kNormal, kLow };
inline constexpr std::size_t kNumPriorities = 3;

// What happened to a task.
struct TaskStats {
  absl::Duration queue;    // from arrival to the start of compute, or to the end if never computed
  absl::Duration compute;  // from the start of compute to its end; 0 if never computed
  int batch_size = 0;      // requests computed side by side, itself included; 0 if never computed
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
  // returned. Must not block. OK: the outputs are written. CANCELLED, DEADLINE_EXCEEDED,
  // UNAVAILABLE (the server drains), RESOURCE_EXHAUSTED (no memory) or INTERNAL otherwise.
  std::function<void(absl::Status status, const TaskStats& stats)> on_done;
};

struct SchedulerOptions {
  // Requests waiting or running at once. At least 1.
  std::int64_t max_queued_requests = 1024;
  // Bytes of their messages and working memory. At least 1. A request that needs more than this by
  // itself can never be served.
  std::int64_t max_queued_bytes = std::int64_t{1} << 30;
  // Requests computed side by side. At least 1.
  int max_batch_requests = 64;
  // Sum of the FLOPs of a batch; a larger request runs alone. 0 = no bound.
  std::int64_t max_batch_flops = 2'000'000'000;
  // How long the oldest waiting request may wait for company; a batch that is full by the two
  // bounds above goes at once. 0 = nobody waits for company.
  absl::Duration max_queue_delay = absl::ZeroDuration();
  // A request that has waited this long is taken before all that arrived later, whatever their
  // priority, so that none waits for ever. 0 = first come, first served.
  absl::Duration max_priority_wait = absl::Seconds(1);
};

// Names a task that Submit took. Never 0, never reused.
using TaskId = std::uint64_t;

// Admits tasks, keeps them in a bounded queue, and computes them in batches on one executor.
// Thread-safety: safe from any thread.
class Scheduler {
 public:
  // Everything passed by reference must outlive the scheduler.
  // Errors: INVALID_ARGUMENT that names an option out of range; RESOURCE_EXHAUSTED if no thread can
  // be had.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(const SchedulerOptions& options,
                                                           AttentionEngine& engine,
                                                           Executor& executor, Clock& clock,
                                                           Metrics& metrics);
  // As Shutdown, with no time left.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Admits a task. Takes ownership of it only on OK, and then calls its on_done exactly once. Never
  // waits for compute or for room.
  // Errors: RESOURCE_EXHAUSTED where the queue is full or memory is short: try again later;
  // INVALID_ARGUMENT for a task that can never fit; DEADLINE_EXCEEDED if it is late already;
  // UNAVAILABLE once Shutdown has begun; whatever allocate_outputs says.
  absl::StatusOr<TaskId> Submit(std::unique_ptr<AttentionTask>& task);

  // Gives a task up. One that waits is answered with CANCELLED, from this thread, before Cancel
  // returns; one that runs stops between tiles; for one that is done nothing happens.
  void Cancel(TaskId id);

  // Admits nothing more and computes what waits until `deadline`; then answers all that is left
  // with UNAVAILABLE (what runs stops between tiles), and returns once nothing is computed any
  // more. Must not be called from an on_done.
  void Shutdown(absl::Time deadline);

  // Tasks that wait for compute.
  std::int64_t num_pending() const;

 private:
  // A task that was admitted.
  struct Entry;
  using EntryPtr = std::unique_ptr<Entry>;
  using EntryMap = std::map<TaskId, EntryPtr>;
  struct Batch;

  Scheduler(const SchedulerOptions& options, AttentionEngine& engine, Executor& executor,
            Clock& clock, Metrics& metrics);

  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Reserve(std::int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasRoom(std::int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(std::int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  TaskId AddPending(EntryPtr entry, std::unique_ptr<AttentionTask>& task)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Empty if no such entry waits. What leaves the queue to run stays admitted.
  EntryMap::node_type ExtractPending(TaskId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To be passed to Drop. Null if no such entry waits.
  EntryPtr TakeUncomputed(TaskId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeExpired(absl::Time now, std::vector<EntryPtr>& expired)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool HasPendingOrClosed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool BatchIsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When what waits must start, however little it is.
  absl::Time LatestStart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The earlier of that and the first deadline of a waiting task.
  absl::Time NextWakeUp() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The batch thread.
  void RunBatches();
  // False once the scheduler is closed and nothing waits.
  bool WaitForBatch(Batch& batch) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whose turn it is; null if nothing waits.
  const Entry* NextPending(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillBatch(Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropExpired(Batch& batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void ComputeBatch(Batch& batch);
  // Answers what is left of a batch for which memory ran short. To be called while nothing is
  // computed.
  void FailRunning() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status MakeJob(Entry& entry);

  bool ShouldStop(Entry& entry) const;
  // Answers a running entry, from the worker that finished it.
  void Finish(Entry* entry, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers an entry that is not to be computed.
  void Drop(EntryPtr entry, absl::StatusCode reason) ABSL_LOCKS_EXCLUDED(mutex_);
  void CountDrop(absl::StatusCode reason) const;

  const SchedulerOptions options_;
  AttentionEngine& engine_;
  Executor& executor_;
  Clock& clock_;
  Metrics& metrics_;

  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  TaskId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of all that is admitted: being submitted, waiting or running.
  std::int64_t admitted_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t admitted_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // By priority, each in the order of arrival.
  std::array<EntryMap, kNumPriorities> pending_requests_ ABSL_GUARDED_BY(mutex_);
  std::int64_t num_pending_ ABSL_GUARDED_BY(mutex_) = 0;
  double pending_flops_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of those that wait and have a deadline.
  std::set<std::pair<absl::Time, TaskId>> pending_deadlines_ ABSL_GUARDED_BY(mutex_);
  EntryMap running_requests_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex join_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_SCHEDULER_H_

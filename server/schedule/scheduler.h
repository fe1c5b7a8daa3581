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
#include "absl/container/flat_hash_map.h"
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
  // with UNAVAILABLE, and returns once the last on_done has returned.
  void Shutdown(absl::Time deadline);

  // Tasks that wait for compute.
  std::int64_t num_pending() const;

 private:
  // A task that was admitted.
  struct Entry;
  using EntryPtr = std::unique_ptr<Entry>;
  struct Batch;

  Scheduler(const SchedulerOptions& options, AttentionEngine& engine, Executor& executor,
            Clock& clock, Metrics& metrics);

  absl::Status Reserve(std::int64_t bytes);
  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(std::int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void AddPending(EntryPtr entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The entry leaves the queue but stays admitted. Null if no such entry waits.
  EntryPtr TakePending(TaskId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  EntryPtr TakeFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeExpired(absl::Time now, std::vector<EntryPtr>& dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Entry& FirstPending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool HasPendingOrClosed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool BatchIsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Time OldestArrival() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Time NextWakeUp() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The batch thread.
  void RunBatches();
  bool WaitForBatch(Batch& batch);
  void FillBatch(Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ComputeBatch(const Batch& batch);
  absl::Status MakeJob(Entry& entry);

  bool ShouldStop(Entry& entry) const;
  void OnJobFinished(Entry* entry, const absl::Status& status);
  // The entry, which waits no more, gets its answer without having been computed.
  void Drop(EntryPtr entry, absl::StatusCode reason);
  void CountDrop(absl::StatusCode reason);

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
  std::array<std::map<TaskId, EntryPtr>, kNumPriorities> pending_requests_ ABSL_GUARDED_BY(mutex_);
  std::int64_t num_pending_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t pending_flops_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of those that wait and have a deadline.
  std::set<std::pair<absl::Time, TaskId>> pending_deadlines_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<TaskId, EntryPtr> running_requests_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex join_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_SCHEDULER_H_

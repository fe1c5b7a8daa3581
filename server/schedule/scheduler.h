// The bounded queue of requests, and what computes them.
//
// How it works is told in server/schedule/README.md.
#ifndef ATTEND_SERVER_SCHEDULE_SCHEDULER_H_
#define ATTEND_SERVER_SCHEDULE_SCHEDULER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/attention/attention.h"
#include "core/executor/executor.h"
#include "server/observe/metrics.h"
#include "server/schedule/attention_task.h"
#include "server/schedule/clock.h"
#include "server/schedule/pending_queue.h"
#include "server/schedule/running_tasks.h"
#include "server/schedule/scheduled_task.h"

namespace attend {

struct SchedulerOptions {
  // Requests waiting or running at once. At least 1. Past this bound and the next one, what waits
  // gives place to what is more urgent.
  std::int64_t max_queued_requests = 1024;
  // Bytes of their messages and working memory. At least 1. A request that needs more than this by
  // itself can never be served.
  std::int64_t max_queued_bytes = std::int64_t{1} << 30;
  // Small requests that are computed as one group. At least 1.
  int max_batch_requests = 64;
  // Sum of the FLOPs of a group; what has more on its own is no small request. 0 = no bound.
  std::int64_t max_batch_flops = 64'000'000;
  // Working memory of the large requests that run side by side; one always runs. Those that need
  // up to a 64th of it have another eighth to themselves, so that they never wait for large ones.
  // At least 1.
  std::int64_t max_running_bytes = std::int64_t{512} << 20;
  // How long the oldest small request may wait for company; a group that is full by the two bounds
  // above goes at once. 0 = nobody waits for company.
  absl::Duration max_queue_delay = absl::ZeroDuration();
  // A request that has waited this long is taken before all that arrived later, whatever their
  // priority, and gives its place to none, so that none waits for ever. 0 = first come, first
  // served.
  absl::Duration max_priority_wait = absl::Seconds(1);
};

// What a scheduler has to do.
struct SchedulerLoad {
  std::array<std::int64_t, kNumPriorities> waiting{};  // tasks, by Priority
  std::int64_t running = 0;                            // tasks that have been started
  std::int64_t admitted_requests = 0;
  std::int64_t admitted_bytes = 0;
  std::int64_t working_bytes = 0;  // of tasks that have been started, small ones aside
};

// Admits tasks, keeps them in a bounded queue, and computes them on one executor: large ones tile
// by tile beside each other, small ones in groups. Thread-safety: safe from any thread.
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
  // waits for compute or for room. Where the queue is full, less urgent tasks that wait give place:
  // they are answered with RESOURCE_EXHAUSTED, from this thread. Throws nothing for want of memory.
  // Errors: RESOURCE_EXHAUSTED where the queue is full or memory is short: try again later;
  // INVALID_ARGUMENT for a task that can never fit; DEADLINE_EXCEEDED if it is late already;
  // UNAVAILABLE once Shutdown has begun; whatever allocate_outputs says.
  absl::StatusOr<TaskId> Submit(std::unique_ptr<AttentionTask>& task);

  // Gives a task up. One that waits is answered with CANCELLED (or DEADLINE_EXCEEDED, where its
  // time is over), from this thread, before Cancel returns; one that runs stops between tiles; for
  // one that is done nothing happens. Throws nothing for want of memory.
  void Cancel(TaskId id);

  // Admits nothing more and computes what waits until `deadline`; then answers all that is left
  // with UNAVAILABLE (what runs stops between tiles), and returns once nothing is computed any
  // more. Must not be called from an on_done.
  void Shutdown(absl::Time deadline);

  // Tasks that wait for compute.
  std::int64_t num_pending() const;

  SchedulerLoad Load() const;

 private:
  class GroupJob;
  class Busy;

  // Tasks of a size and priority that run in tiles at once, for each worker: enough that none idles
  // where one has little to do for a moment.
  static constexpr int kTiledPerThread = 2;

  // What to start next; null where there is nothing.
  struct Start {
    GroupJob* group = nullptr;
    ScheduledTask* tiled = nullptr;
    std::unique_ptr<ScheduledTask> hopeless;  // not to be started at all
  };

  Scheduler(const SchedulerOptions& options, AttentionEngine& engine, Executor& executor,
            Clock& clock, Metrics& metrics);

  // With room for all that may run at once.
  static RunningTasks NoneTiled(const Executor& executor);

  absl::StatusOr<TaskId> Admit(std::unique_ptr<AttentionTask>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Room for a task, which others that wait may have to make.
  absl::Status Reserve(std::int64_t bytes, Priority priority) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes less urgent tasks out of the queue until there is room: those of the lowest priority
  // first, of one priority the newest first. None where they cannot make enough. To be passed to
  // Drop.
  ScheduledTaskMap Displace(std::int64_t bytes, Priority priority)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanDisplace(std::int64_t bytes, Priority priority, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const ScheduledTask* NextToDisplace(Priority priority, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom(std::int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(std::int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  TaskSize SizeOf(const ScheduledTask& waiting) const;
  RunningTasks& Tiled(TaskSize size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return tiled_[static_cast<std::size_t>(size)];
  }
  PendingQueue& Queue(TaskSize size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pending_[static_cast<std::size_t>(size)];
  }
  const PendingQueue& Small() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pending_[static_cast<std::size_t>(TaskSize::kSmall)];
  }
  // Working memory that tasks of a size may have at once.
  std::int64_t Budget(TaskSize size) const;
  TaskId AddPending(std::unique_ptr<ScheduledTask> waiting, std::unique_ptr<AttentionTask>& task)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::int64_t NumWaiting(Priority priority) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowQueueDepth(Priority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Empty if no such task waits. What leaves the queue to run stays admitted.
  ScheduledTaskMap::node_type ExtractPending(TaskId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To be passed to Drop. Null if no such task waits.
  std::unique_ptr<ScheduledTask> TakeUncomputed(TaskId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropExpired() ABSL_LOCKS_EXCLUDED(mutex_);
  void DropPending(DropReason reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers a task that is not to be computed. Throws nothing, so that the next one gets its answer
  // too.
  void Drop(std::unique_ptr<ScheduledTask> waiting, DropReason reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts a task that is not computed, or not to its end, and says why.
  absl::Status GiveUp(DropReason reason, Priority priority) const;
  void CountDrop(DropReason reason, Priority priority) const;

  std::int64_t NumPending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsStill() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The timer thread: what waits expires, groups stop waiting for company, and what there was no
  // memory to start is tried again.
  void RunTimer();
  bool WaitForTimer() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Time NextWakeUp() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Starts all that may start. Called wherever something may start that could not before.
  void StartWork() ABSL_LOCKS_EXCLUDED(mutex_);
  Start NextStart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanAddGroup() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GroupIsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GroupIsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  GroupJob* ActivateGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SubmitGroup(GroupJob& group) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunGroup(GroupJob& group, Worker& worker) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeGroup(GroupJob& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunHere(ScheduledTask& small, Worker& worker) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndGroup(GroupJob& group) ABSL_LOCKS_EXCLUDED(mutex_);
  // A task that is to run in tiles of its own, if any may start now.
  void TakeTiled(TaskSize size, Start& start) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayStart(const ScheduledTask& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartTiled(ScheduledTask& tiled) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status MakeJob(ScheduledTask& running);
  // Asked before each tile.
  bool ShouldStop(ScheduledTask& running) const;
  void BeginOnce(ScheduledTask& running);
  // Answers a running task.
  void Finish(ScheduledTask& running, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  const SchedulerOptions options_;
  AttentionEngine& engine_;
  Executor& executor_;
  Clock& clock_;
  Metrics& metrics_;
  std::vector<std::unique_ptr<GroupJob>> groups_;  // as many as there are threads
  FairShare group_share_;
  std::atomic<int> num_computing_{0};

  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool gave_up_ ABSL_GUARDED_BY(mutex_) =
      false;  // on what waits: groups aside, nothing starts any more
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;  // the timer
  TaskId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of all that is admitted: being submitted, waiting or running.
  std::int64_t admitted_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t admitted_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<PendingQueue, kNumTaskSizes> pending_ ABSL_GUARDED_BY(mutex_);  // by TaskSize
  ScheduledTaskMap running_ ABSL_GUARDED_BY(mutex_);
  // Those of them that run in tiles of their own, by TaskSize.
  std::array<RunningTasks, kNumTaskSizes> tiled_ ABSL_GUARDED_BY(mutex_);
  // When the timer thread is to start what waits, since there was no memory to; infinite future:
  // there was.
  absl::Time retry_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  int active_groups_ ABSL_GUARDED_BY(mutex_) = 0;
  bool group_comes_ ABSL_GUARDED_BY(mutex_) = false;  // that will take what waits then
  int num_busy_ ABSL_GUARDED_BY(mutex_) = 0;          // threads that still need the scheduler

  absl::Mutex join_mutex_;
  std::thread timer_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_SCHEDULER_H_

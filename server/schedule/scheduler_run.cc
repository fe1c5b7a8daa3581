// How what waits starts, runs and ends.
#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <pthread.h>
#include <utility>

#include "server/schedule/group_job.h"
#include "server/schedule/measured_job.h"
#include "server/schedule/scheduler.h"

namespace attend {

namespace {

// What a small request takes beside its compute, to be taken up and answered.
constexpr std::int64_t kFlopsOfOverhead = 500'000;

// A group of less is left to one worker: some 50 microseconds' work.
constexpr std::int64_t kWorthSharing = 3'000'000;

// When what there was no memory to start is tried again: soon for who waits, and rarely enough to
// be no load.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(10);

}  // namespace

// While one of these lives, Shutdown does not return.
class Scheduler::Busy {
 public:
  explicit Busy(Scheduler& scheduler) : scheduler_(scheduler) {
    const absl::MutexLock lock(&scheduler_.mutex_);
    ++scheduler_.num_busy_;
  }
  ~Busy() {
    const absl::MutexLock lock(&scheduler_.mutex_);
    --scheduler_.num_busy_;
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Scheduler& scheduler_;
};

void Scheduler::RunTimer() {
  pthread_setname_np(pthread_self(), "attend-timer");
  while (WaitForTimer()) {
    DropExpired();
    StartWork();
  }
}

// False once the scheduler has stopped.
bool Scheduler::WaitForTimer() {
  const absl::MutexLock lock(&mutex_);
  while (!stopped_) {
    const absl::Time wake_up = NextWakeUp();
    if (clock_.Now() >= wake_up) {
      // What fails again says again when to retry.
      if (clock_.Now() >= retry_at_) retry_at_ = absl::InfiniteFuture();
      return true;
    }
    // A time that moves away is no reason to wake up: it is looked at again then.
    const auto changed = [this, wake_up]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopped_ || NextWakeUp() < wake_up;
    };
    clock_.AwaitUntil(mutex_, absl::Condition(&changed), wake_up);
  }
  return false;
}

absl::Time Scheduler::NextWakeUp() const {
  absl::Time next = retry_at_;
  for (const PendingQueue& queue : pending_) next = std::min(next, queue.FirstDeadline());
  // Where no group can start now, one that ends starts the next; where there is no memory for one,
  // the next try is soon enough.
  const bool waits_for_company = options_.max_queue_delay > absl::ZeroDuration() && CanAddGroup() &&
                                 retry_at_ == absl::InfiniteFuture();
  if (waits_for_company) next = std::min(next, Small().OldestArrival() + options_.max_queue_delay);
  return next;
}

void Scheduler::StartWork() {
  while (true) {
    Start start;
    {
      const absl::MutexLock lock(&mutex_);
      start = NextStart();
    }
    const bool any = start.group != nullptr || start.tiled != nullptr || start.hopeless != nullptr;
    if (!any) return;
    if (start.hopeless != nullptr) {
      Drop(std::move(start.hopeless), DropReason::kDeadline);
    }
    if (start.tiled != nullptr) StartTiled(*start.tiled);
    const bool out_of_memory = start.group != nullptr && !SubmitGroup(*start.group);
    if (out_of_memory) return;
  }
}

Scheduler::Start Scheduler::NextStart() {
  Start start;
  if (gave_up_) return start;
  if (CanAddGroup() && GroupIsDue()) start.group = ActivateGroup();
  for (const TaskSize size : {TaskSize::kMedium, TaskSize::kLarge}) {
    if (start.tiled == nullptr && start.hopeless == nullptr) TakeTiled(size, start);
  }
  return start;
}

void Scheduler::TakeTiled(TaskSize size, Start& start) {
  const absl::Time now = clock_.Now();
  const ScheduledTask* next = Queue(size).Next(now);
  if (next == nullptr || !MayStart(*next)) return;
  const RunningTasks::Outlook outlook = Tiled(size).OutlookOf(*next, now);
  if (outlook == RunningTasks::Outlook::kTooLate) start.hopeless = TakeUncomputed(next->id);
  if (outlook != RunningTasks::Outlook::kGood) return;
  start.tiled = running_.insert(ExtractPending(next->id)).position->second.get();
  Tiled(size).Add(*start.tiled, now);
}

// Few at a time: of many that share the workers each ends as late as the last, and where there are
// too many, all too late. But as many of a higher priority may start beside those of a lower one.
bool Scheduler::MayStart(const ScheduledTask& next) {
  const RunningTasks& tiled = Tiled(next.size);
  const std::int64_t bytes = tiled.working_bytes();
  if (bytes > 0 && next.working_bytes > Budget(next.size) - bytes) return false;
  return tiled.NumAsUrgentAs(next.task->priority) < kTiledPerThread * executor_.num_threads();
}

bool Scheduler::CanAddGroup() const {
  return !Small().empty() && !group_comes_ && active_groups_ < executor_.num_threads();
}

bool Scheduler::GroupIsDue() const {
  return closed_ || GroupIsFull() ||
         clock_.Now() >= Small().OldestArrival() + options_.max_queue_delay;
}

bool Scheduler::GroupIsFull() const {
  return Small().size() >= options_.max_batch_requests ||
         (options_.max_batch_flops > 0 &&
          Small().flops() >= static_cast<double>(options_.max_batch_flops));
}

Scheduler::GroupJob* Scheduler::ActivateGroup() {
  const auto idle = std::find_if(groups_.begin(), groups_.end(),
                                 [](const auto& group) { return !group->active; });
  GroupJob& group = **idle;
  group.active = true;
  group.weight = WeightOf(Small().Next(clock_.Now())->task->priority);
  ++active_groups_;
  group_comes_ = true;
  return &group;
}

// False where there is no memory for it: what waits then starts with what comes next, or when the
// timer thread tries again.
bool Scheduler::SubmitGroup(GroupJob& group) {
  try {
    executor_.Submit(group, {.weight = group.weight, .share = &group_share_});
    return true;
  } catch (const std::bad_alloc&) {
    const absl::MutexLock lock(&mutex_);
    group.active = false;
    --active_groups_;
    group_comes_ = false;
    retry_at_ = clock_.Now() + kRetryDelay;
    return false;
  }
}

void Scheduler::RunGroup(GroupJob& group, Worker& worker) {
  DropExpired();
  {
    const absl::MutexLock lock(&mutex_);
    TakeGroup(group);
    group_comes_ = false;
  }
  StartWork();  // another worker may take what is left
  if (group.tasks.empty()) return;
  const int size = static_cast<int>(group.tasks.size());
  std::int64_t flops = 0;
  for (const ScheduledTask* task : group.tasks) flops += task->flops;
  metrics_.BatchTaken(size, flops);
  const int batch_size = num_computing_ + size;
  for (ScheduledTask* task : group.tasks) {
    task->batch_size = batch_size;
    RunHere(*task, worker);
  }
}

void Scheduler::RunHere(ScheduledTask& small, Worker& worker) {
  absl::Status status = ShouldStop(small) ? absl::CancelledError() : MakeJob(small);
  if (!status.ok()) return Finish(small, std::move(status));
  BeginOnce(small);  // also where there is no tile, which would
  RunInline(*small.job, worker);
}

// Takes the worker's part of what waits, or more where that is not worth waking another worker.
void Scheduler::TakeGroup(GroupJob& group) {
  group.tasks.clear();
  const std::int64_t threads = executor_.num_threads();
  const std::int64_t part = (Small().size() + threads - 1) / threads;
  const absl::Time now = clock_.Now();
  std::int64_t flops = 0;
  for (std::int64_t i = 0; i < options_.max_batch_requests && !Small().empty(); ++i) {
    const ScheduledTask* next = Small().Next(now);
    flops += next->flops;
    if (options_.max_batch_flops > 0 && flops > options_.max_batch_flops && i > 0) return;
    if (i >= part && flops + i * kFlopsOfOverhead > kWorthSharing) return;
    const auto running = running_.insert(ExtractPending(next->id));
    group.tasks.push_back(running.position->second.get());
  }
}

void Scheduler::EndGroup(GroupJob& group) {
  GroupJob* next = nullptr;
  {
    const absl::MutexLock lock(&mutex_);
    group.active = false;
    --active_groups_;
    if (CanAddGroup() && GroupIsDue()) next = ActivateGroup();
  }
  // Without one that is active the scheduler may be gone now.
  if (next != nullptr) SubmitGroup(*next);
}

void Scheduler::StartTiled(ScheduledTask& tiled) {
  absl::Status status = ShouldStop(tiled) ? absl::CancelledError() : MakeJob(tiled);
  if (status.ok()) {
    try {
      executor_.Submit(*tiled.job, {.weight = WeightOf(tiled.task->priority)});
      return;
    } catch (const std::bad_alloc&) {
      status = NoMemory();
    }
  }
  Finish(tiled, std::move(status));
}

absl::Status Scheduler::MakeJob(ScheduledTask& running) {
  try {
    AttentionJobHooks hooks;
    hooks.should_stop = [this, &running] {
      if (ShouldStop(running)) return true;
      BeginOnce(running);
      return false;
    };
    hooks.on_finished = [this, &running](absl::Status status) {
      if (running.size == TaskSize::kSmall) return Finish(running, std::move(status));
      const Busy busy(*this);
      Finish(running, std::move(status));
      StartWork();  // there is memory for others now
    };
    absl::StatusOr<std::unique_ptr<TileJob>> job =
        MakeAttentionJob(engine_, running.task->problem, running.outputs, std::move(hooks));
    if (!job.ok()) return job.status();
    running.job = *std::move(job);
    if (running.size != TaskSize::kSmall) {
      running.job = std::make_unique<MeasuredJob>(std::move(running.job), running);
    }
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

bool Scheduler::ShouldStop(ScheduledTask& running) const {
  if (running.StopReason().has_value()) return true;
  const absl::Time deadline = running.task->deadline;
  if (deadline == absl::InfiniteFuture() || clock_.Now() < deadline) return false;
  running.RequestStop(DropReason::kDeadline);
  return true;
}

void Scheduler::BeginOnce(ScheduledTask& running) {
  if (running.begun.load(std::memory_order_relaxed) || running.begun.exchange(true)) return;
  running.started = clock_.Now();
  const int computing = ++num_computing_;
  metrics_.ComputeStarted();
  if (running.size == TaskSize::kSmall) return;  // its group has said the rest
  metrics_.BatchTaken(1, running.flops);
  running.batch_size = computing;
}

void Scheduler::Finish(ScheduledTask& running, absl::Status status) {
  // The job refers to the caller's memory, which may go once on_done is called. This may destroy
  // the closure that called us: only parameters are used from here on.
  running.job.reset();
  const absl::Time now = clock_.Now();
  std::unique_ptr<ScheduledTask> owned;
  {
    const absl::MutexLock lock(&mutex_);
    owned = std::move(running_.extract(running.id).mapped());
    Release(owned->bytes);
    if (owned->size != TaskSize::kSmall) Tiled(owned->size).Remove(*owned, now);
  }
  const Priority priority = owned->task->priority;
  const std::optional<DropReason> stopped = owned->StopReason();
  if (absl::IsCancelled(status) && stopped.has_value()) status = GiveUp(*stopped, priority);
  if (absl::IsResourceExhausted(status)) CountDrop(DropReason::kNoMemory, priority);
  TaskStats stats{.queue = now - owned->task->arrival};
  if (owned->begun) {
    --num_computing_;
    metrics_.ComputeEnded();
    stats = {.queue = owned->started - owned->task->arrival,
             .compute = now - owned->started,
             .batch_size = owned->batch_size};
  }
  owned->task->on_done(std::move(status), stats);
}

}  // namespace attend

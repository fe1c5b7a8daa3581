#include "server/schedule/scheduler.h"

#include <cstddef>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "server/schedule/group_job.h"

namespace attend {

namespace {

absl::Status OutOfRange(absl::string_view option, std::int64_t value, std::int64_t minimum) {
  return InvalidField(option,
                      absl::StrCat("is ", value, "; expected a value of at least ", minimum));
}

absl::Status CheckOptions(const SchedulerOptions& options) {
  if (options.max_queued_requests < 1) {
    return OutOfRange("max_queued_requests", options.max_queued_requests, 1);
  }
  if (options.max_queued_bytes < 1) {
    return OutOfRange("max_queued_bytes", options.max_queued_bytes, 1);
  }
  if (options.max_batch_requests < 1) {
    return OutOfRange("max_batch_requests", options.max_batch_requests, 1);
  }
  if (options.max_batch_flops < 0) {
    return OutOfRange("max_batch_flops", options.max_batch_flops, 0);
  }
  if (options.max_running_bytes < 1) {
    return OutOfRange("max_running_bytes", options.max_running_bytes, 1);
  }
  if (options.max_queue_delay < absl::ZeroDuration()) {
    return InvalidField("max_queue_delay", "is negative; expected at least 0");
  }
  if (options.max_priority_wait < absl::ZeroDuration()) {
    return InvalidField("max_priority_wait", "is negative; expected at least 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerOptions& options,
                                                             AttentionEngine& engine,
                                                             Executor& executor, Clock& clock,
                                                             Metrics& metrics) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  try {
    return std::unique_ptr<Scheduler>(new Scheduler(options, engine, executor, clock, metrics));
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("cannot start the timer thread");
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for the scheduler");
  }
}

RunningTasks Scheduler::NoneTiled(const Executor& executor) {
  return RunningTasks(kNumPriorities * kTiledPerThread *
                      static_cast<std::size_t>(executor.num_threads()));
}

Scheduler::Scheduler(const SchedulerOptions& options, AttentionEngine& engine, Executor& executor,
                     Clock& clock, Metrics& metrics)
    : options_(options),
      engine_(engine),
      executor_(executor),
      clock_(clock),
      metrics_(metrics),
      pending_{PendingQueue(options.max_priority_wait), PendingQueue(options.max_priority_wait),
               PendingQueue(options.max_priority_wait)},
      tiled_{NoneTiled(executor), NoneTiled(executor), NoneTiled(executor)} {
  for (int i = 0; i < executor.num_threads(); ++i) {
    groups_.push_back(std::make_unique<GroupJob>(*this, options.max_batch_requests));
  }
  const absl::MutexLock lock(&join_mutex_);
  timer_ = std::thread([this] { RunTimer(); });
}

Scheduler::~Scheduler() { Shutdown(absl::InfinitePast()); }

std::int64_t Scheduler::NumWaiting(Priority priority) const {
  std::int64_t waiting = 0;
  for (const PendingQueue& queue : pending_) waiting += queue.size_of(priority);
  return waiting;
}

void Scheduler::ShowQueueDepth(Priority priority) {
  metrics_.SetQueueDepth(static_cast<PriorityLabel>(priority), NumWaiting(priority));
}

ScheduledTaskMap::node_type Scheduler::ExtractPending(TaskId id) {
  ScheduledTaskMap::node_type node;
  for (PendingQueue& queue : pending_) {
    if (node.empty()) node = queue.Extract(id);
  }
  if (!node.empty()) ShowQueueDepth(node.mapped()->task->priority);
  return node;
}

std::unique_ptr<ScheduledTask> Scheduler::TakeUncomputed(TaskId id) {
  ScheduledTaskMap::node_type node = ExtractPending(id);
  if (node.empty()) return nullptr;
  Release(node.mapped()->bytes);
  return std::move(node.mapped());
}

void Scheduler::DropExpired() {
  while (true) {
    std::unique_ptr<ScheduledTask> expired;
    {
      const absl::MutexLock lock(&mutex_);
      const absl::Time now = clock_.Now();
      TaskId id = 0;
      for (const PendingQueue& queue : pending_) {
        if (id == 0) id = queue.FirstExpired(now);
      }
      if (id == 0) return;
      expired = TakeUncomputed(id);
    }
    Drop(std::move(expired), DropReason::kDeadline);
  }
}

void Scheduler::DropPending(DropReason reason) {
  while (true) {
    std::unique_ptr<ScheduledTask> waiting;
    {
      const absl::MutexLock lock(&mutex_);
      TaskId id = 0;
      for (const PendingQueue& queue : pending_) {
        if (id == 0) id = queue.Any();
      }
      if (id == 0) return;
      waiting = TakeUncomputed(id);
    }
    Drop(std::move(waiting), reason);
  }
}

void Scheduler::Cancel(TaskId id) {
  std::unique_ptr<ScheduledTask> waiting;
  {
    const absl::MutexLock lock(&mutex_);
    waiting = TakeUncomputed(id);
    const auto running = running_.find(id);
    if (running != running_.end()) {
      running->second->RequestStop(running->second->ReasonToLeave(clock_.Now()));
    }
  }
  if (waiting == nullptr) return;
  const DropReason reason = waiting->ReasonToLeave(clock_.Now());
  Drop(std::move(waiting), reason);
}

void Scheduler::Shutdown(absl::Time deadline) {
  {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  StartWork();  // nobody waits for company any more
  {
    const absl::MutexLock lock(&mutex_);
    clock_.AwaitUntil(mutex_, absl::Condition(this, &Scheduler::IsIdle), deadline);
    gave_up_ = true;
    for (auto& [id, running] : running_) running->RequestStop(DropReason::kDraining);
  }
  DropPending(DropReason::kDraining);
  {
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Scheduler::IsStill));
    stopped_ = true;
  }
  const absl::MutexLock lock(&join_mutex_);
  if (timer_.joinable()) timer_.join();
}

std::int64_t Scheduler::num_pending() const {
  const absl::MutexLock lock(&mutex_);
  return NumPending();
}

SchedulerLoad Scheduler::Load() const {
  const absl::MutexLock lock(&mutex_);
  SchedulerLoad load{.running = static_cast<std::int64_t>(running_.size()),
                     .admitted_requests = admitted_requests_,
                     .admitted_bytes = admitted_bytes_};
  for (const RunningTasks& tiled : tiled_) load.working_bytes += tiled.working_bytes();
  for (std::size_t i = 0; i < kNumPriorities; ++i) {
    load.waiting[i] = NumWaiting(static_cast<Priority>(i));
  }
  return load;
}

std::int64_t Scheduler::NumPending() const {
  std::int64_t pending = 0;
  for (const PendingQueue& queue : pending_) pending += queue.size();
  return pending;
}

bool Scheduler::IsIdle() const { return NumPending() == 0 && IsStill(); }

bool Scheduler::IsStill() const {
  return running_.empty() && num_busy_ == 0 && active_groups_ == 0;
}

void Scheduler::Drop(std::unique_ptr<ScheduledTask> waiting, DropReason reason) {
  AttentionTask& task = *waiting->task;
  task.on_done(GiveUp(reason, task.priority), {.queue = clock_.Now() - task.arrival});
}

absl::Status Scheduler::GiveUp(DropReason reason, Priority priority) const {
  CountDrop(reason, priority);
  return GivenUp(reason);
}

void Scheduler::CountDrop(DropReason reason, Priority priority) const {
  metrics_.RequestDropped(reason, static_cast<PriorityLabel>(priority));
}

}  // namespace attend

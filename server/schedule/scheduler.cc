#include "server/schedule/scheduler.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "server/schedule/group_job.h"
#include "server/schedule/saturating_add.h"

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

Scheduler::Scheduler(const SchedulerOptions& options, AttentionEngine& engine, Executor& executor,
                     Clock& clock, Metrics& metrics)
    : options_(options),
      engine_(engine),
      executor_(executor),
      clock_(clock),
      metrics_(metrics),
      pending_{PendingQueue(options.max_priority_wait), PendingQueue(options.max_priority_wait),
               PendingQueue(options.max_priority_wait)} {
  for (int i = 0; i < executor.num_threads(); ++i) {
    groups_.push_back(std::make_unique<GroupJob>(*this, options.max_batch_requests));
  }
  const absl::MutexLock lock(&join_mutex_);
  timer_ = std::thread([this] { RunTimer(); });
}

Scheduler::~Scheduler() { Shutdown(absl::InfinitePast()); }

absl::StatusOr<TaskId> Scheduler::Submit(std::unique_ptr<AttentionTask>& task) {
  absl::StatusOr<TaskId> id = Admit(task);
  if (id.ok()) StartWork();
  return id;
}

absl::StatusOr<TaskId> Scheduler::Admit(std::unique_ptr<AttentionTask>& task) {
  try {
    if (clock_.Now() >= task->deadline) {
      CountDrop(absl::StatusCode::kDeadlineExceeded);
      return GivenUp(absl::StatusCode::kDeadlineExceeded);
    }
    auto waiting = std::make_unique<ScheduledTask>();
    waiting->working_bytes = WorkingBytes(task->problem);
    waiting->bytes = SaturatingAdd(task->message_bytes, waiting->working_bytes);
    waiting->flops = task->problem.flops();
    waiting->cost = ComputeCost(task->problem);
    waiting->size = SizeOf(*waiting);
    if (absl::Status status = Reserve(waiting->bytes); !status.ok()) return status;
    absl::Cleanup release = [this, bytes = waiting->bytes] {
      const absl::MutexLock lock(&mutex_);
      Release(bytes);
    };
    absl::StatusOr<AttentionOutputs> outputs = task->allocate_outputs();
    if (!outputs.ok()) return outputs.status();
    waiting->outputs = *outputs;
    const absl::MutexLock lock(&mutex_);  // released before `release` runs
    if (absl::Status status = CheckOpen(); !status.ok()) return status;
    const TaskId id = AddPending(std::move(waiting), task);
    std::move(release).Cancel();
    return id;
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

absl::Status Scheduler::CheckOpen() const {
  if (!closed_) return absl::OkStatus();
  CountDrop(absl::StatusCode::kUnavailable);
  return GivenUp(absl::StatusCode::kUnavailable);
}

absl::Status Scheduler::Reserve(std::int64_t bytes) {
  if (bytes > options_.max_queued_bytes) {
    return InvalidField("query", absl::StrCat("needs ", bytes,
                                              " bytes with the other tensors, the answer and "
                                              "working memory; expected at most ",
                                              options_.max_queued_bytes, ": split the request"));
  }
  absl::MutexLock lock(&mutex_);
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  if (!HasRoom(bytes)) {
    mutex_.Unlock();
    DropExpired();  // which may make room
    mutex_.Lock();
  }
  if (!HasRoom(bytes)) {
    CountDrop(absl::StatusCode::kResourceExhausted);
    return absl::ResourceExhaustedError(
        absl::StrCat("the server is full: ", admitted_requests_, " of ",
                     options_.max_queued_requests, " requests, ", admitted_bytes_, " of ",
                     options_.max_queued_bytes, " bytes; try again later"));
  }
  ++admitted_requests_;
  admitted_bytes_ += bytes;
  return absl::OkStatus();
}

bool Scheduler::HasRoom(std::int64_t bytes) const {
  return admitted_requests_ < options_.max_queued_requests &&
         bytes <= options_.max_queued_bytes - admitted_bytes_;
}

void Scheduler::Release(std::int64_t bytes) {
  --admitted_requests_;
  admitted_bytes_ -= bytes;
}

TaskSize Scheduler::SizeOf(const ScheduledTask& waiting) const {
  // Some 30 microseconds of compute, and memory that every core has in its cache: tiles of its own
  // would cost more to schedule than to compute.
  constexpr double kMostCost = 2e6;
  constexpr double kMostCostOfMedium = 4e9;  // some 60 milliseconds of one core
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 20;
  const bool fits = options_.max_batch_flops == 0 || waiting.flops <= options_.max_batch_flops;
  if (fits && waiting.cost <= kMostCost && waiting.bytes <= kMostBytes) return TaskSize::kSmall;
  const bool medium =
      waiting.cost <= kMostCostOfMedium && waiting.working_bytes <= options_.max_running_bytes / 64;
  return medium ? TaskSize::kMedium : TaskSize::kLarge;
}

std::int64_t Scheduler::Budget(TaskSize size) const {
  return size == TaskSize::kLarge ? options_.max_running_bytes : options_.max_running_bytes / 8;
}

TaskId Scheduler::AddPending(std::unique_ptr<ScheduledTask> waiting,
                             std::unique_ptr<AttentionTask>& task) {
  const TaskId id = ++last_id_;
  waiting->id = id;
  PendingQueue& queue = Queue(waiting->size);
  const Priority priority = task->priority;
  queue.Add(std::move(waiting), task);
  ShowQueueDepth(priority);
  return id;
}

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
    Drop(std::move(expired), absl::StatusCode::kDeadlineExceeded);
  }
}

void Scheduler::DropPending(absl::StatusCode reason) {
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
  const absl::StatusCode reason = waiting->ReasonToLeave(clock_.Now());
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
    for (auto& [id, running] : running_) running->RequestStop(absl::StatusCode::kUnavailable);
  }
  DropPending(absl::StatusCode::kUnavailable);
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
  for (const std::int64_t bytes : running_bytes_) load.working_bytes += bytes;
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

void Scheduler::Drop(std::unique_ptr<ScheduledTask> waiting, absl::StatusCode reason) {
  CountDrop(reason);
  waiting->task->on_done(GivenUp(reason), {.queue = clock_.Now() - waiting->task->arrival});
}

void Scheduler::CountDrop(absl::StatusCode reason) const {
  switch (reason) {
    case absl::StatusCode::kDeadlineExceeded:
      return metrics_.RequestDropped(DropReason::kDeadline);
    case absl::StatusCode::kCancelled:
      return metrics_.RequestDropped(DropReason::kCancelled);
    case absl::StatusCode::kResourceExhausted:
      return metrics_.RequestDropped(DropReason::kQueueFull);
    default:
      return metrics_.RequestDropped(DropReason::kDraining);
  }
}

}  // namespace attend

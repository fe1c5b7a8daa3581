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
#include "server/schedule/saturating_add.h"
#include "server/schedule/scheduler_internal.h"

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
    return absl::ResourceExhaustedError("cannot start the batch thread");
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for the scheduler");
  }
}

Scheduler::Scheduler(const SchedulerOptions& options, AttentionEngine& engine, Executor& executor,
                     Clock& clock, Metrics& metrics)
    : options_(options), engine_(engine), executor_(executor), clock_(clock), metrics_(metrics) {
  absl::MutexLock lock(&join_mutex_);
  thread_ = std::thread([this] { RunBatches(); });
}

Scheduler::~Scheduler() { Shutdown(absl::InfinitePast()); }

absl::StatusOr<TaskId> Scheduler::Submit(std::unique_ptr<AttentionTask>& task) {
  try {
    if (clock_.Now() >= task->deadline) {
      CountDrop(absl::StatusCode::kDeadlineExceeded);
      return GivenUp(absl::StatusCode::kDeadlineExceeded);
    }
    auto entry = std::make_unique<Entry>();
    entry->bytes = SaturatingAdd(task->message_bytes, WorkingBytes(task->problem));
    entry->flops = task->problem.flops();
    if (absl::Status status = Reserve(entry->bytes); !status.ok()) return status;
    absl::Cleanup release = [this, bytes = entry->bytes] {
      absl::MutexLock lock(&mutex_);
      Release(bytes);
    };
    absl::StatusOr<AttentionOutputs> outputs = task->allocate_outputs();
    if (!outputs.ok()) return outputs.status();
    entry->outputs = *outputs;

    absl::MutexLock lock(&mutex_);  // released before `release` runs
    if (absl::Status status = CheckOpen(); !status.ok()) return status;
    const TaskId id = AddPending(std::move(entry), task);
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
  std::vector<EntryPtr> expired;
  absl::Cleanup answer = [this, &expired] {
    for (EntryPtr& entry : expired) Drop(std::move(entry), absl::StatusCode::kDeadlineExceeded);
  };
  absl::MutexLock lock(&mutex_);  // released before `answer` runs
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  if (!HasRoom(bytes)) TakeExpired(clock_.Now(), expired);
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

TaskId Scheduler::AddPending(EntryPtr entry, std::unique_ptr<AttentionTask>& task) {
  Entry& added = *entry;
  added.id = ++last_id_;
  auto& pending = pending_requests_[static_cast<std::size_t>(task->priority)];
  if (task->deadline != absl::InfiniteFuture()) {
    pending_deadlines_.emplace(task->deadline, added.id);
  }
  pending.emplace_hint(pending.end(), added.id, std::move(entry));
  // Nothing throws from here on, so the task changes hands only with success.
  added.task = std::move(task);
  pending_flops_ += static_cast<double>(added.flops);
  ++num_pending_;
  metrics_.SetQueueDepth(num_pending_);
  return added.id;
}

Scheduler::EntryMap::node_type Scheduler::ExtractPending(TaskId id) {
  for (EntryMap& pending : pending_requests_) {
    EntryMap::node_type node = pending.extract(id);
    if (node.empty()) continue;
    const Entry& entry = *node.mapped();
    pending_deadlines_.erase({entry.task->deadline, id});
    --num_pending_;
    // Sums of doubles drift; an empty queue is where they start again.
    pending_flops_ = num_pending_ == 0 ? 0 : pending_flops_ - static_cast<double>(entry.flops);
    metrics_.SetQueueDepth(num_pending_);
    return node;
  }
  return {};
}

Scheduler::EntryPtr Scheduler::TakeUncomputed(TaskId id) {
  EntryMap::node_type node = ExtractPending(id);
  if (node.empty()) return nullptr;
  Release(node.mapped()->bytes);
  return std::move(node.mapped());
}

void Scheduler::TakeExpired(absl::Time now, std::vector<EntryPtr>& expired) {
  while (!pending_deadlines_.empty() && pending_deadlines_.begin()->first <= now) {
    expired.emplace_back();  // first, since it may throw: an entry that is taken must not get lost
    const TaskId id = pending_deadlines_.begin()->second;
    pending_deadlines_.erase(pending_deadlines_.begin());
    expired.back() = TakeUncomputed(id);
    if (expired.back() == nullptr) expired.pop_back();
  }
}

void Scheduler::Cancel(TaskId id) {
  EntryPtr waiting;
  {
    absl::MutexLock lock(&mutex_);
    waiting = TakeUncomputed(id);
    const auto running = running_requests_.find(id);
    if (running != running_requests_.end()) {
      running->second->RequestStop(running->second->ReasonToLeave(clock_.Now()));
    }
  }
  if (waiting == nullptr) return;
  const absl::StatusCode reason = waiting->ReasonToLeave(clock_.Now());
  Drop(std::move(waiting), reason);
}

void Scheduler::Shutdown(absl::Time deadline) {
  std::vector<EntryPtr> left;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    clock_.AwaitUntil(mutex_, absl::Condition(this, &Scheduler::IsIdle), deadline);
    for (EntryMap& pending : pending_requests_) {
      while (!pending.empty()) left.push_back(TakeUncomputed(pending.begin()->first));
    }
    for (auto& [id, entry] : running_requests_) entry->RequestStop(absl::StatusCode::kUnavailable);
  }
  for (EntryPtr& entry : left) Drop(std::move(entry), absl::StatusCode::kUnavailable);
  absl::MutexLock lock(&join_mutex_);
  if (thread_.joinable()) thread_.join();
}

std::int64_t Scheduler::num_pending() const {
  absl::MutexLock lock(&mutex_);
  return num_pending_;
}

bool Scheduler::HasPendingOrClosed() const { return closed_ || num_pending_ > 0; }

bool Scheduler::IsIdle() const { return num_pending_ == 0 && running_requests_.empty(); }

bool Scheduler::BatchIsFull() const {
  return num_pending_ >= options_.max_batch_requests ||
         (options_.max_batch_flops > 0 &&
          pending_flops_ >= static_cast<double>(options_.max_batch_flops));
}

absl::Time Scheduler::LatestStart() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const EntryMap& pending : pending_requests_) {
    if (!pending.empty()) oldest = std::min(oldest, pending.begin()->second->task->arrival);
  }
  return oldest + options_.max_queue_delay;
}

absl::Time Scheduler::NextWakeUp() const {
  const absl::Time start = LatestStart();
  return pending_deadlines_.empty() ? start : std::min(start, pending_deadlines_.begin()->first);
}

void Scheduler::Drop(EntryPtr entry, absl::StatusCode reason) {
  CountDrop(reason);
  entry->task->on_done(GivenUp(reason), {.queue = clock_.Now() - entry->task->arrival});
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

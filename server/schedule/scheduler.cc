#include "server/schedule/scheduler.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <pthread.h>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

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
  return absl::OkStatus();
}

// Why a task was given up, in words for its caller.
absl::Status GivenUp(absl::StatusCode reason) {
  switch (reason) {
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError("the request's time ran out before its answer was ready");
    case absl::StatusCode::kCancelled:
      return absl::CancelledError("the caller gave the request up");
    default:
      return absl::UnavailableError("the server is shutting down; try another one");
  }
}

absl::Status NoMemory() {
  return absl::ResourceExhaustedError("the server is short of memory; try again later");
}

// Saturates: huge requests are refused by size, and must not seem small.
std::int64_t Add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

}  // namespace

struct Scheduler::Entry {
  std::unique_ptr<AttentionTask> task;
  TaskId id = 0;
  std::int64_t bytes = 0;  // that count towards max_queued_bytes
  std::int64_t flops = 0;
  AttentionOutputs outputs;
  std::unique_ptr<TileJob> job;
  absl::Time started = absl::InfiniteFuture();
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

struct Scheduler::Batch {
  std::vector<Entry*> entries;    // owned by running_requests_ until they finish
  std::vector<EntryPtr> expired;  // to be answered without compute
};

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerOptions& options,
                                                             AttentionEngine& engine,
                                                             Executor& executor, Clock& clock,
                                                             Metrics& metrics) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  try {
    return std::unique_ptr<Scheduler>(new Scheduler(options, engine, executor, clock, metrics));
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("cannot start the batch thread");
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
    entry->bytes = Add(task->message_bytes, WorkingBytes(task->problem));
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
    const TaskId id = pending_deadlines_.begin()->second;
    pending_deadlines_.erase(pending_deadlines_.begin());
    if (EntryPtr entry = TakeUncomputed(id)) expired.push_back(std::move(entry));
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

bool Scheduler::WaitForBatch(Batch& batch) {
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &Scheduler::HasPendingOrClosed));
    if (num_pending_ == 0) return false;
    TakeExpired(clock_.Now(), batch.expired);
    if (closed_ || BatchIsFull() || clock_.Now() >= LatestStart()) {
      FillBatch(batch);
      return true;
    }
    if (!batch.expired.empty()) return true;  // they need not wait for the others
    const absl::Time wake_up = NextWakeUp();
    const auto changed = [this, wake_up]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || BatchIsFull() || NextWakeUp() != wake_up;
    };
    clock_.AwaitUntil(mutex_, absl::Condition(&changed), wake_up);
  }
}

void Scheduler::FillBatch(Batch& batch) {
  std::int64_t flops = 0;
  const auto is_empty = [](const EntryMap& pending) { return pending.empty(); };
  while (batch.entries.size() < static_cast<std::size_t>(options_.max_batch_requests)) {
    const auto first =
        std::find_if_not(pending_requests_.begin(), pending_requests_.end(), is_empty);
    if (first == pending_requests_.end()) return;
    flops = Add(flops, first->begin()->second->flops);
    const bool too_much = options_.max_batch_flops > 0 && flops > options_.max_batch_flops;
    if (too_much && !batch.entries.empty()) return;
    // The node moves as it is: nothing is allocated, so nothing can fail.
    const auto running = running_requests_.insert(ExtractPending(first->begin()->first));
    batch.entries.push_back(running.position->second.get());
  }
}

void Scheduler::RunBatches() {
  pthread_setname_np(pthread_self(), "attend-batch");
  for (Batch batch; WaitForBatch(batch); batch = Batch()) {
    for (EntryPtr& entry : batch.expired) {
      Drop(std::move(entry), absl::StatusCode::kDeadlineExceeded);
    }
    if (!batch.entries.empty()) ComputeBatch(batch);
  }
}

void Scheduler::ComputeBatch(const Batch& batch) {
  const absl::Time started = clock_.Now();
  std::vector<Entry*> ready;
  std::vector<TileJob*> jobs;
  for (Entry* entry : batch.entries) {
    entry->started = started;
    if (absl::Status status = MakeJob(*entry); !status.ok()) {
      Finish(entry, std::move(status));
      continue;
    }
    ready.push_back(entry);
    jobs.push_back(entry->job.get());
  }
  if (jobs.empty()) return;
  for (Entry* entry : ready) entry->batch_size = static_cast<int>(jobs.size());
  metrics_.BatchFormed(static_cast<int>(jobs.size()));
  executor_.Run(jobs);
}

absl::Status Scheduler::MakeJob(Entry& entry) {
  try {
    AttentionJobHooks hooks;
    hooks.should_stop = [this, &entry] { return ShouldStop(entry); };
    hooks.on_finished = [this, &entry](absl::Status status) { Finish(&entry, std::move(status)); };
    absl::StatusOr<std::unique_ptr<TileJob>> job =
        MakeAttentionJob(engine_, entry.task->problem, entry.outputs, std::move(hooks));
    if (!job.ok()) return job.status();
    entry.job = *std::move(job);
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

bool Scheduler::ShouldStop(Entry& entry) const {
  if (entry.stop_reason.load(std::memory_order_relaxed) != absl::StatusCode::kOk) return true;
  const absl::Time deadline = entry.task->deadline;
  if (deadline == absl::InfiniteFuture() || clock_.Now() < deadline) return false;
  entry.RequestStop(absl::StatusCode::kDeadlineExceeded);
  return true;
}

void Scheduler::Finish(Entry* entry, absl::Status status) {
  // The job refers to the caller's memory, which may go once on_done is called. This destroys the
  // closure that called us: only parameters are used from here on.
  entry->job.reset();
  const absl::Time now = clock_.Now();
  EntryPtr owned;
  {
    absl::MutexLock lock(&mutex_);
    owned = std::move(running_requests_.extract(entry->id).mapped());
    Release(owned->bytes);
  }
  if (absl::IsCancelled(status)) {
    const absl::StatusCode reason = owned->stop_reason.load();
    CountDrop(reason);
    status = GivenUp(reason);
  }
  TaskStats stats{.queue = owned->started - owned->task->arrival, .batch_size = owned->batch_size};
  if (stats.batch_size > 0) stats.compute = now - owned->started;
  owned->task->on_done(std::move(status), stats);
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

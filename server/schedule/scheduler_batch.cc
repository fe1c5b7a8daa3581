#include <algorithm>
#include <cstddef>
#include <new>
#include <pthread.h>
#include <tuple>
#include <utility>

#include "server/schedule/saturating_add.h"
#include "server/schedule/scheduler.h"
#include "server/schedule/scheduler_internal.h"

namespace attend {

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

const Scheduler::Entry* Scheduler::NextPending(absl::Time now) const {
  const Entry* first = nullptr;   // of the highest priority
  const Entry* oldest = nullptr;  // of any
  for (const EntryMap& pending : pending_requests_) {
    if (pending.empty()) continue;
    const Entry* entry = pending.begin()->second.get();
    if (first == nullptr) first = entry;
    if (oldest == nullptr || entry->id < oldest->id) oldest = entry;
  }
  const bool aged = oldest != nullptr && now - oldest->task->arrival >= options_.max_priority_wait;
  return aged ? oldest : first;
}

void Scheduler::FillBatch(Batch& batch) {
  std::int64_t flops = 0;
  const absl::Time now = clock_.Now();
  while (batch.entries.size() < static_cast<std::size_t>(options_.max_batch_requests)) {
    const Entry* next = NextPending(now);
    if (next == nullptr) return;
    flops = SaturatingAdd(flops, next->flops);
    const bool too_much = options_.max_batch_flops > 0 && flops > options_.max_batch_flops;
    if (too_much && !batch.entries.empty()) return;
    // The node moves as it is, so the entry is always in one of the maps: FailRunning finds it
    // where memory for `entries` runs short.
    const auto running = running_requests_.insert(ExtractPending(next->id));
    batch.entries.push_back(running.position->second.get());
  }
}

void Scheduler::RunBatches() {
  pthread_setname_np(pthread_self(), "attend-batch");
  for (bool open = true; open;) {
    Batch batch;
    try {
      open = WaitForBatch(batch);
      DropExpired(batch);
      if (!batch.entries.empty()) ComputeBatch(batch);
    } catch (const std::bad_alloc&) {
      DropExpired(batch);
      FailRunning();
    }
  }
}

void Scheduler::DropExpired(Batch& batch) {
  for (EntryPtr& entry : batch.expired) {
    if (entry != nullptr) Drop(std::move(entry), absl::StatusCode::kDeadlineExceeded);
  }
}

void Scheduler::FailRunning() {
  const auto first_running = [this]() -> Entry* {
    absl::MutexLock lock(&mutex_);
    return running_requests_.empty() ? nullptr : running_requests_.begin()->second.get();
  };
  while (Entry* entry = first_running()) {
    // One that never started to compute has waited until now.
    entry->started = std::min(entry->started, clock_.Now());
    Finish(entry, NoMemory());
  }
}

void Scheduler::ComputeBatch(Batch& batch) {
  // Tiles are taken roughly in the order of the jobs: a small task ends early this way, and delays
  // the large ones little.
  std::sort(batch.entries.begin(), batch.entries.end(), [](const Entry* a, const Entry* b) {
    return std::tie(a->task->priority, a->flops, a->id) <
           std::tie(b->task->priority, b->flops, b->id);
  });
  const absl::Time started = clock_.Now();
  std::vector<Entry*> ready;
  std::vector<TileJob*> jobs;
  for (Entry* entry : batch.entries) {
    entry->started = started;
    absl::Status status = ShouldStop(*entry) ? absl::CancelledError() : MakeJob(*entry);
    if (!status.ok()) {
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

}  // namespace attend

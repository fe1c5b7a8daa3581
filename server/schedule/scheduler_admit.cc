// Who is admitted, and who gives place.
#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "server/schedule/saturating_add.h"
#include "server/schedule/scheduler.h"

namespace attend {

absl::StatusOr<TaskId> Scheduler::Submit(std::unique_ptr<AttentionTask>& task) {
  absl::StatusOr<TaskId> id = Admit(task);
  if (id.ok()) StartWork();
  return id;
}

absl::StatusOr<TaskId> Scheduler::Admit(std::unique_ptr<AttentionTask>& task) {
  const Priority priority = task->priority;
  try {
    if (clock_.Now() >= task->deadline) return GiveUp(DropReason::kDeadline, priority);
    auto waiting = std::make_unique<ScheduledTask>();
    waiting->working_bytes = WorkingBytes(task->problem);
    waiting->bytes = SaturatingAdd(task->message_bytes, waiting->working_bytes);
    waiting->flops = task->problem.flops();
    waiting->cost = ComputeCost(task->problem);
    waiting->size = SizeOf(*waiting);
    if (absl::Status status = Reserve(waiting->bytes, priority); !status.ok()) return status;
    absl::Cleanup release = [this, bytes = waiting->bytes] {
      const absl::MutexLock lock(&mutex_);
      Release(bytes);
    };
    absl::StatusOr<AttentionOutputs> outputs = task->allocate_outputs();
    if (!outputs.ok()) {
      if (absl::IsResourceExhausted(outputs.status())) CountDrop(DropReason::kNoMemory, priority);
      return outputs.status();
    }
    waiting->outputs = *outputs;
    const absl::MutexLock lock(&mutex_);  // released before `release` runs
    if (closed_) return GiveUp(DropReason::kDraining, priority);
    const TaskId id = AddPending(std::move(waiting), task);
    std::move(release).Cancel();
    return id;
  } catch (const std::bad_alloc&) {
    return GiveUp(DropReason::kNoMemory, priority);
  }
}

absl::Status Scheduler::Reserve(std::int64_t bytes, Priority priority) {
  if (bytes > options_.max_queued_bytes) {
    return InvalidField("query", absl::StrCat("needs ", bytes,
                                              " bytes with the other tensors, the answer and "
                                              "working memory; expected at most ",
                                              options_.max_queued_bytes, ": split the request"));
  }
  ScheduledTaskMap displaced;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return GiveUp(DropReason::kDraining, priority);
    if (!HasRoom(bytes)) {
      mutex_.Unlock();
      DropExpired();  // which may make room
      mutex_.Lock();
    }
    if (!HasRoom(bytes)) displaced = Displace(bytes, priority);
    if (!HasRoom(bytes)) {
      return absl::ResourceExhaustedError(
          absl::StrCat(GiveUp(DropReason::kQueueFull, priority).message(), ": it holds ",
                       admitted_requests_, " of ", options_.max_queued_requests, " requests, ",
                       admitted_bytes_, " of ", options_.max_queued_bytes, " bytes"));
    }
    ++admitted_requests_;
    admitted_bytes_ += bytes;
  }
  for (auto& [id, waiting] : displaced) Drop(std::move(waiting), DropReason::kDisplaced);
  return absl::OkStatus();
}

ScheduledTaskMap Scheduler::Displace(std::int64_t bytes, Priority priority) {
  const absl::Time now = clock_.Now();
  ScheduledTaskMap displaced;
  if (!CanDisplace(bytes, priority, now)) return displaced;
  while (!HasRoom(bytes)) {
    ScheduledTaskMap::node_type node = ExtractPending(NextToDisplace(priority, now)->id);
    Release(node.mapped()->bytes);
    displaced.insert(std::move(node));
  }
  return displaced;
}

bool Scheduler::CanDisplace(std::int64_t bytes, Priority priority, absl::Time now) const {
  if (NextToDisplace(priority, now) == nullptr) return false;
  std::int64_t missing = bytes - (options_.max_queued_bytes - admitted_bytes_);
  // The sum first: where it is too little, no task has to be looked at.
  std::int64_t less_urgent = 0;
  const std::size_t first = static_cast<std::size_t>(priority) + 1;
  for (std::size_t i = first; i < kNumPriorities; ++i) {
    for (const PendingQueue& queue : pending_) {
      less_urgent += queue.bytes_of(static_cast<Priority>(i));
    }
  }
  if (less_urgent < missing) return false;
  for (std::size_t i = first; i < kNumPriorities; ++i) {
    for (const PendingQueue& queue : pending_) {
      missing -= queue.DisplaceableBytes(static_cast<Priority>(i), now, missing);
    }
  }
  return missing <= 0;
}

const ScheduledTask* Scheduler::NextToDisplace(Priority priority, absl::Time now) const {
  for (std::size_t i = kNumPriorities - 1; i > static_cast<std::size_t>(priority); --i) {
    const ScheduledTask* newest = nullptr;
    for (const PendingQueue& queue : pending_) {
      const ScheduledTask* next = queue.NextToDisplace(static_cast<Priority>(i), now);
      if (next != nullptr && (newest == nullptr || next->id > newest->id)) newest = next;
    }
    if (newest != nullptr) return newest;
  }
  return nullptr;
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

}  // namespace attend

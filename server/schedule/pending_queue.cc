#include "server/schedule/pending_queue.h"

#include <algorithm>

namespace attend {

void PendingQueue::Add(std::unique_ptr<ScheduledTask> waiting,
                       std::unique_ptr<AttentionTask>& task) {
  ScheduledTask& added = *waiting;
  const auto index = static_cast<std::size_t>(task->priority);
  ScheduledTaskMap& pending = by_priority_[index];
  const auto at = pending.emplace_hint(pending.end(), added.id, std::move(waiting));
  try {
    if (task->deadline != absl::InfiniteFuture()) deadlines_.emplace(task->deadline, added.id);
  } catch (...) {
    pending.erase(at);
    throw;
  }
  // Nothing throws from here on, so the task changes hands only with success.
  added.task = std::move(task);
  flops_ += static_cast<double>(added.flops);
  bytes_[index] += added.bytes;
  ++size_;
}

const ScheduledTask* PendingQueue::Next(absl::Time now) const {
  const ScheduledTask* first = nullptr;   // of the highest priority
  const ScheduledTask* oldest = nullptr;  // of any
  for (const ScheduledTaskMap& pending : by_priority_) {
    if (pending.empty()) continue;
    const ScheduledTask* waiting = pending.begin()->second.get();
    if (first == nullptr) first = waiting;
    if (oldest == nullptr || waiting->id < oldest->id) oldest = waiting;
  }
  return oldest != nullptr && HasAged(*oldest, now) ? oldest : first;
}

ScheduledTaskMap::node_type PendingQueue::Extract(TaskId id) {
  for (ScheduledTaskMap& pending : by_priority_) {
    ScheduledTaskMap::node_type node = pending.extract(id);
    if (node.empty()) continue;
    const ScheduledTask& waiting = *node.mapped();
    deadlines_.erase({waiting.task->deadline, id});
    bytes_[static_cast<std::size_t>(waiting.task->priority)] -= waiting.bytes;
    --size_;
    // Sums of doubles drift; an empty queue is where they start again.
    flops_ = size_ == 0 ? 0 : flops_ - static_cast<double>(waiting.flops);
    return node;
  }
  return {};
}

TaskId PendingQueue::FirstExpired(absl::Time now) const {
  return FirstDeadline() <= now ? deadlines_.begin()->second : 0;
}

absl::Time PendingQueue::FirstDeadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

absl::Time PendingQueue::OldestArrival() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const ScheduledTaskMap& pending : by_priority_) {
    if (!pending.empty()) oldest = std::min(oldest, pending.begin()->second->task->arrival);
  }
  return oldest;
}

const ScheduledTask* PendingQueue::NextToDisplace(Priority priority, absl::Time now) const {
  const ScheduledTaskMap& pending = Of(priority);
  if (pending.empty()) return nullptr;
  const ScheduledTask* newest = pending.rbegin()->second.get();
  return HasAged(*newest, now) ? nullptr : newest;
}

std::int64_t PendingQueue::DisplaceableBytes(Priority priority, absl::Time now,
                                             std::int64_t enough) const {
  const ScheduledTaskMap& pending = Of(priority);
  std::int64_t bytes = 0;
  for (auto at = pending.rbegin(); at != pending.rend() && bytes < enough; ++at) {
    if (HasAged(*at->second, now)) break;
    bytes += at->second->bytes;
  }
  return bytes;
}

TaskId PendingQueue::Any() const {
  for (const ScheduledTaskMap& pending : by_priority_) {
    if (!pending.empty()) return pending.begin()->first;
  }
  return 0;
}

}  // namespace attend

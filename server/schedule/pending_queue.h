// Tasks that wait, and whose turn it is.
#ifndef ATTEND_SERVER_SCHEDULE_PENDING_QUEUE_H_
#define ATTEND_SERVER_SCHEDULE_PENDING_QUEUE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "absl/time/time.h"
#include "server/schedule/scheduled_task.h"

namespace attend {

// By priority, first come first served within each; but what has waited for `max_priority_wait`
// goes before all that came later, whatever their priority, so that none waits for ever.
// Thread-safety: none.
class PendingQueue {
 public:
  explicit PendingQueue(absl::Duration max_priority_wait) : max_priority_wait_(max_priority_wait) {}

  // Ids must rise. Throws std::bad_alloc, and then has changed nothing but moved `waiting` away.
  // `task` goes into it, on success only.
  void Add(std::unique_ptr<ScheduledTask> waiting, std::unique_ptr<AttentionTask>& task);

  // Whose turn it is; null if nothing waits.
  const ScheduledTask* Next(absl::Time now) const;

  // Empty if no such task waits.
  ScheduledTaskMap::node_type Extract(TaskId id);

  // One of those whose deadline has passed; 0 if there is none.
  TaskId FirstExpired(absl::Time now) const;
  absl::Time FirstDeadline() const;

  // Infinite future if nothing waits.
  absl::Time OldestArrival() const;

  // What may give its place to something more urgent, newest first: the last of `priority`; null if
  // there is none, or if it has aged: so that what was admitted is computed however much comes.
  const ScheduledTask* NextToDisplace(Priority priority, absl::Time now) const;

  // Bytes of those that would be displaced one after the other, counted until they are `enough`.
  std::int64_t DisplaceableBytes(Priority priority, absl::Time now, std::int64_t enough) const;

  // Any of those that wait; 0 if none does.
  TaskId Any() const;

  std::int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t size_of(Priority priority) const {
    return static_cast<std::int64_t>(Of(priority).size());
  }
  // ScheduledTask::bytes of all of them.
  std::int64_t bytes_of(Priority priority) const {
    return bytes_[static_cast<std::size_t>(priority)];
  }
  double flops() const { return flops_; }

 private:
  const ScheduledTaskMap& Of(Priority priority) const {
    return by_priority_[static_cast<std::size_t>(priority)];
  }
  bool HasAged(const ScheduledTask& waiting, absl::Time now) const {
    return now - waiting.task->arrival >= max_priority_wait_;
  }

  const absl::Duration max_priority_wait_;
  std::array<ScheduledTaskMap, kNumPriorities> by_priority_;
  std::set<std::pair<absl::Time, TaskId>> deadlines_;  // of those that have one
  std::array<std::int64_t, kNumPriorities> bytes_{};   // by Priority
  std::int64_t size_ = 0;
  double flops_ = 0;
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_PENDING_QUEUE_H_

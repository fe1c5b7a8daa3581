#include "server/schedule/running_tasks.h"

#include <algorithm>
#include <atomic>

namespace attend {

namespace {

// The part of its time that a task is to have left for its answer to travel, and for what it waits
// for meanwhile: under overload all is slow.
constexpr int kPartForAnswer = 4;

double CostLeft(const ScheduledTask& task) {
  return std::max(0.0, task.cost - task.done.load(std::memory_order_relaxed));
}

bool IsInTime(const ScheduledTask& task, absl::Time end) {
  const absl::Duration of_answer = (task.task->deadline - task.task->arrival) / kPartForAnswer;
  return end + of_answer <= task.task->deadline;
}

}  // namespace

double WeightOf(Priority priority) {
  switch (priority) {
    case Priority::kHigh:
      return 16;
    case Priority::kNormal:
      return 4;
    case Priority::kLow:
      break;
  }
  return 1;
}

void RunningTasks::Add(ScheduledTask& task, absl::Time now) {
  if (tasks_.empty()) pace_.Begin(now);
  tasks_.push_back(&task);
  working_bytes_ += task.working_bytes;
  ++num_of_priority_[static_cast<std::size_t>(task.task->priority)];
}

void RunningTasks::Remove(ScheduledTask& task, absl::Time now) {
  RecordPace(now);
  tasks_.erase(std::find(tasks_.begin(), tasks_.end(), &task));
  working_bytes_ -= task.working_bytes;
  --num_of_priority_[static_cast<std::size_t>(task.task->priority)];
}

int RunningTasks::NumAsUrgentAs(Priority priority) const {
  int number = 0;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(priority); ++i) {
    number += num_of_priority_[i];
  }
  return number;
}

// Also of tasks that were stopped half done, or the pace would only be that of those that were fast
// enough.
void RunningTasks::RecordPace(absl::Time now) {
  double done = 0;
  for (ScheduledTask* task : tasks_) {
    const double of_task = task->done.load(std::memory_order_relaxed);
    done += of_task - task->recorded;
    task->recorded = of_task;
  }
  pace_.Record(done, now);
}

RunningTasks::Outlook RunningTasks::OutlookOf(const ScheduledTask& next, absl::Time now) const {
  if (tasks_.empty()) return Outlook::kGood;
  const absl::Duration needed = pace_.TimeFor(CostUntilDone(next, nullptr));
  if (!IsInTime(next, now + needed)) return Outlook::kTooLate;
  return WouldMakeOthersLate(next, now) ? Outlook::kWouldMakeOthersLate : Outlook::kGood;
}

bool RunningTasks::WouldMakeOthersLate(const ScheduledTask& next, absl::Time now) const {
  const absl::Time end_of_all = now + pace_.TimeFor(CostOfAll() + CostLeft(next));
  for (const ScheduledTask* task : tasks_) {
    const bool is_less_urgent = task->task->priority > next.task->priority;
    if (is_less_urgent || IsInTime(*task, end_of_all)) continue;
    if (IsInTime(*task, now + pace_.TimeFor(CostUntilDone(*task, &next)))) continue;
    const absl::Time end_without = now + pace_.TimeFor(CostUntilDone(*task, nullptr));
    if (end_without <= task->task->deadline) return true;
  }
  return false;
}

// What is done of all until a task is done, where it and the others share the workers by weight.
double RunningTasks::CostUntilDone(const ScheduledTask& task, const ScheduledTask* joining) const {
  const double own = CostLeft(task);
  const double weight = WeightOf(task.task->priority);
  const auto beside = [&](const ScheduledTask& other) {
    return std::min(CostLeft(other), own * WeightOf(other.task->priority) / weight);
  };
  double done = own;
  for (const ScheduledTask* other : tasks_) {
    if (other != &task) done += beside(*other);
  }
  return joining != nullptr ? done + beside(*joining) : done;
}

double RunningTasks::CostOfAll() const {
  double cost = 0;
  for (const ScheduledTask* task : tasks_) cost += CostLeft(*task);
  return cost;
}

}  // namespace attend

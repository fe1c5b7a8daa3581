// What runs in tiles, and what would come of it if another task joined.
#ifndef ATTEND_SERVER_SCHEDULE_RUNNING_TASKS_H_
#define ATTEND_SERVER_SCHEDULE_RUNNING_TASKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "server/schedule/attention_task.h"
#include "server/schedule/pace.h"
#include "server/schedule/scheduled_task.h"

namespace attend {

// A task's share of the workers.
double WeightOf(Priority priority);

// The tasks of one size that run in tiles of their own. Nothing throws but the constructor.
// Thread-safety: none, but workers may go on with the tasks.
class RunningTasks {
 public:
  enum class Outlook : std::uint8_t {
    kGood,
    kTooLate,              // it would not be done in time
    kWouldMakeOthersLate,  // that are as urgent, and will be in time without it
  };

  // For up to `most` tasks at once.
  explicit RunningTasks(std::size_t most) { tasks_.reserve(most); }

  void Add(ScheduledTask& task, absl::Time now);
  // To be called as soon as it has ended, in whatever way.
  void Remove(ScheduledTask& task, absl::Time now);

  std::int64_t working_bytes() const { return working_bytes_; }
  int NumAsUrgentAs(Priority priority) const;

  // What comes of it if `next` starts now, by what such tasks have taken lately and what is left of
  // them; always good where none runs.
  Outlook OutlookOf(const ScheduledTask& next, absl::Time now) const;

 private:
  void RecordPace(absl::Time now);
  double CostUntilDone(const ScheduledTask& task, const ScheduledTask* joining) const;
  double CostOfAll() const;
  bool WouldMakeOthersLate(const ScheduledTask& next, absl::Time now) const;

  std::vector<ScheduledTask*> tasks_;
  std::int64_t working_bytes_ = 0;
  std::array<int, kNumPriorities> num_of_priority_{};
  Pace pace_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_RUNNING_TASKS_H_

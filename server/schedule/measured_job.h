// The job of a task, telling how much of it is done.
#ifndef ATTEND_SERVER_SCHEDULE_MEASURED_JOB_H_
#define ATTEND_SERVER_SCHEDULE_MEASURED_JOB_H_

#include <cstdint>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "core/executor/tile_job.h"
#include "server/schedule/scheduled_task.h"

namespace attend {

// Runs another job, and adds what has been done of a task's cost to its `done`, unit by unit.
class MeasuredJob final : public TileJob {
 public:
  // `task` must live until Finish.
  MeasuredJob(std::unique_ptr<TileJob> job, ScheduledTask& task);

  int num_stages() const override { return static_cast<int>(stages_.size()); }
  std::int64_t num_units(int stage) const override { return stages_[stage].num_units; }
  std::int64_t unit_cost(int stage) const override { return stages_[stage].unit_cost; }
  void RunUnit(int stage, std::int64_t unit, Worker& worker) override;
  void Finish() override { job_->Finish(); }  // which may destroy this

 private:
  struct Stage {
    std::int64_t num_units = 0;
    std::int64_t unit_cost = 0;
    double done_by_unit = 0;  // of the task's cost
  };

  const std::unique_ptr<TileJob> job_;
  absl::InlinedVector<Stage, 3> stages_;
  ScheduledTask& task_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_MEASURED_JOB_H_

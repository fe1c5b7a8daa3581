#include "server/schedule/measured_job.h"

#include <utility>

namespace attend {

MeasuredJob::MeasuredJob(std::unique_ptr<TileJob> job, ScheduledTask& task)
    : job_(std::move(job)), task_(task) {
  double in_all = 0;
  for (int i = 0; i < job_->num_stages(); ++i) {
    // A job says nothing of what a unit costs where there is none.
    const std::int64_t num_units = job_->num_units(i);
    const std::int64_t unit_cost = num_units > 0 ? job_->unit_cost(i) : 1;
    stages_.push_back({.num_units = num_units, .unit_cost = unit_cost});
    in_all += static_cast<double>(num_units) * static_cast<double>(unit_cost);
  }
  for (Stage& stage : stages_) {
    if (in_all > 0) {
      stage.done_by_unit = task.cost * static_cast<double>(stage.unit_cost) / in_all;
    }
  }
}

void MeasuredJob::RunUnit(int stage, std::int64_t unit, Worker& worker) {
  job_->RunUnit(stage, unit, worker);
  if (task_.StopReason().has_value()) return;  // then nothing was
  task_.done.fetch_add(stages_[stage].done_by_unit, std::memory_order_relaxed);
}

}  // namespace attend

// A group of small requests, as a job of the executor.
#ifndef ATTEND_SERVER_SCHEDULE_GROUP_JOB_H_
#define ATTEND_SERVER_SCHEDULE_GROUP_JOB_H_

#include <cstdint>
#include <vector>

#include "core/executor/tile_job.h"
#include "server/schedule/scheduler.h"

namespace attend {

// One unit that takes, when a worker comes for it, what small requests wait, and computes them one
// after the other. Used again and again.
class Scheduler::GroupJob final : public TileJob {
 public:
  GroupJob(Scheduler& scheduler, int max_requests) : scheduler_(scheduler) {
    tasks.reserve(static_cast<std::size_t>(max_requests));
  }

  int num_stages() const override { return 1; }
  std::int64_t num_units(int) const override { return 1; }
  // What one small request costs at most: each is due as much as any other request, not the
  // group as a whole.
  std::int64_t unit_cost(int) const override { return 2'000'000; }
  void RunUnit(int, std::int64_t, Worker& worker) override { scheduler_.RunGroup(*this, worker); }
  void Finish() override { scheduler_.EndGroup(*this); }

  std::vector<ScheduledTask*> tasks;  // owned by the scheduler until they finish
  // Both guarded by the scheduler's mutex.
  bool active = false;
  double weight = 1;

 private:
  Scheduler& scheduler_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_GROUP_JOB_H_

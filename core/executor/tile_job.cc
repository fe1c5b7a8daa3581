#include "core/executor/tile_job.h"

namespace attend {

void RunInline(TileJob& job, Worker& worker) {
  for (int stage = 0; stage < job.num_stages(); ++stage) {
    const std::int64_t units = job.num_units(stage);
    for (std::int64_t unit = 0; unit < units; ++unit) job.RunUnit(stage, unit, worker);
  }
  job.Finish();
}

}  // namespace attend

// What the kernel knows about this process, by the names that Prometheus' client libraries share.
#ifndef ATTEND_SERVER_OBSERVE_PROCESS_METRICS_H_
#define ATTEND_SERVER_OBSERVE_PROCESS_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <vector>

namespace attend {

// process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes,
// process_open_fds, process_max_fds, process_threads and process_start_time_seconds, read from
// /proc at each Collect. One that cannot be read is left out.
// Thread-safety: safe from any thread.
class ProcessMetrics final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace attend

#endif  // ATTEND_SERVER_OBSERVE_PROCESS_METRICS_H_

// Metric families that are made at each scrape instead of being kept.
#ifndef ATTEND_SERVER_OBSERVE_FAMILY_H_
#define ATTEND_SERVER_OBSERVE_FAMILY_H_

#include <prometheus/metric_family.h>
#include <string>
#include <utility>

namespace attend {

// A family of one sample without labels. `type`: Counter or Gauge.
inline prometheus::MetricFamily MakeFamily(std::string name, std::string help,
                                           prometheus::MetricType type, double value) {
  prometheus::ClientMetric sample;
  sample.counter.value = value;
  sample.gauge.value = value;
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  family.metric.push_back(std::move(sample));
  return family;
}

}  // namespace attend

#endif  // ATTEND_SERVER_OBSERVE_FAMILY_H_

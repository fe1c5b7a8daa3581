#include "server/observe/metrics.h"

#include <array>
#include <grpcpp/grpcpp.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <utility>
#include <vector>

#include "server/observe/family.h"
#include "server/observe/process_metrics.h"

namespace attend {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;

// Label values, in the order of the enums that index them.
constexpr std::array<const char*, 7> kMethods = {"Attend",
                                                 "GetServerInfo",
                                                 "AttendStream",
                                                 "Estimate",
                                                 "RegisterSharedMemory",
                                                 "UnregisterSharedMemory",
                                                 "GetSharedMemoryStatus"};
constexpr std::array<const char*, 3> kPriorities = {"high", "normal", "low"};
constexpr std::array<const char*, 6> kDropReasons = {"deadline",  "cancelled", "queue_full",
                                                     "displaced", "no_memory", "draining"};
constexpr std::array<const char*, 17> kCodes = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// From 50 us, a small request on an idle server, to minutes, a huge one behind others. Seconds.
const Histogram::BucketBoundaries& SecondsBuckets() {
  static const auto* const buckets = new Histogram::BucketBoundaries{
      50e-6,  100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3,
      250e-3, 500e-3, 1,      2.5,    5,    10,     30,   60,    120,   300};
  return *buckets;
}

const Histogram::BucketBoundaries& BatchBuckets() {
  static const auto* const buckets =
      new Histogram::BucketBoundaries{1, 2, 4, 8, 16, 32, 64, 128, 256};
  return *buckets;
}

// From a few tokens to hours of one core.
const Histogram::BucketBoundaries& FlopsBuckets() {
  static const auto* const buckets =
      new Histogram::BucketBoundaries{1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13};
  return *buckets;
}

Counter& AddCounter(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

Gauge& AddGauge(Registry& registry, const char* name, const char* help, const Labels& labels = {}) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}

Histogram& AddHistogram(Registry& registry, const char* name, const char* help,
                        const Histogram::BucketBoundaries& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

using CodeCounters = std::array<Counter*, kCodes.size()>;

std::array<CodeCounters, kMethods.size()> AddRequestCounters(Registry& registry) {
  auto& family = prometheus::BuildCounter()
                     .Name("attend_requests_total")
                     .Help("Calls, and requests of streams, that ended, by method and gRPC code.")
                     .Register(registry);
  std::array<CodeCounters, kMethods.size()> counters{};
  for (std::size_t method = 0; method < kMethods.size(); ++method) {
    for (std::size_t code = 0; code < kCodes.size(); ++code) {
      counters[method][code] = &family.Add({{"method", kMethods[method]}, {"code", kCodes[code]}});
    }
  }
  return counters;
}

using PriorityCounters = std::array<Counter*, kPriorities.size()>;

std::array<PriorityCounters, kDropReasons.size()> AddDropCounters(Registry& registry) {
  auto& family = prometheus::BuildCounter()
                     .Name("attend_dropped_total")
                     .Help("Requests that were not computed, or not to their end.")
                     .Register(registry);
  std::array<PriorityCounters, kDropReasons.size()> counters{};
  for (std::size_t reason = 0; reason < kDropReasons.size(); ++reason) {
    for (std::size_t priority = 0; priority < kPriorities.size(); ++priority) {
      counters[reason][priority] =
          &family.Add({{"reason", kDropReasons[reason]}, {"priority", kPriorities[priority]}});
    }
  }
  return counters;
}

std::array<Gauge*, kPriorities.size()> AddQueueDepths(Registry& registry) {
  auto& family = prometheus::BuildGauge()
                     .Name("attend_queue_depth")
                     .Help("Requests that wait for compute.")
                     .Register(registry);
  std::array<Gauge*, kPriorities.size()> gauges{};
  for (std::size_t priority = 0; priority < kPriorities.size(); ++priority) {
    gauges[priority] = &family.Add({{"priority", kPriorities[priority]}});
  }
  return gauges;
}

std::array<Histogram*, kMethods.size()> AddRequestSeconds(Registry& registry) {
  auto& family = prometheus::BuildHistogram()
                     .Name("attend_request_seconds")
                     .Help("Time from a request's arrival to its answer, whatever its code.")
                     .Register(registry);
  std::array<Histogram*, kMethods.size()> histograms{};
  for (std::size_t method = 0; method < kMethods.size(); ++method) {
    histograms[method] = &family.Add({{"method", kMethods[method]}}, SecondsBuckets());
  }
  return histograms;
}

// A code outside the enum counts as UNKNOWN, as gRPC itself reads it.
std::size_t CodeIndex(grpc::StatusCode code) {
  const auto index = static_cast<std::size_t>(code);
  return index < kCodes.size() ? index : static_cast<std::size_t>(grpc::StatusCode::UNKNOWN);
}

}  // namespace

class Metrics::Impl {
 public:
  explicit Impl(MetricsOptions options) : options_(std::move(options)) {
    AddGauge(registry_, "attend_compute_threads", "Threads that compute.")
        .Set(options_.compute_threads);
    AddGauge(registry_, "attend_build_info", "1; the labels say what runs.",
             {{"version", options_.version},
              {"cpu_target", options_.cpu_target},
              {"grpc_version", grpc::Version()}})
        .Set(1);
  }

  std::vector<prometheus::MetricFamily> Collect() const {
    std::vector<prometheus::MetricFamily> families = registry_.Collect();
    const auto add_gauge = [&families](const char* name, const char* help,
                                       const std::function<std::int64_t()>& value) {
      families.push_back(MakeFamily(name, help, prometheus::MetricType::Gauge,
                                    value ? static_cast<double>(value()) : 0));
    };
    add_gauge("attend_gemm_primitives", "Matrix product kernels created since the start.",
              options_.gemm_primitives);
    add_gauge("attend_shared_memory_regions", "Regions of shared memory that are registered.",
              options_.shared_memory_regions);
    add_gauge("attend_buffer_lent_bytes", "Memory of messages and of computing that is in use.",
              options_.lent_buffer_bytes);
    add_gauge("attend_buffer_kept_bytes",
              "Memory of messages and of computing that is kept for the next requests.",
              options_.kept_buffer_bytes);
    for (prometheus::MetricFamily& family : process_.Collect()) {
      families.push_back(std::move(family));
    }
    return families;
  }

 private:
  Registry registry_;
  const MetricsOptions options_;
  const ProcessMetrics process_;

 public:
  const std::array<CodeCounters, kMethods.size()> requests = AddRequestCounters(registry_);
  const std::array<Histogram*, kMethods.size()> request_seconds = AddRequestSeconds(registry_);
  const std::array<PriorityCounters, kDropReasons.size()> dropped = AddDropCounters(registry_);
  Histogram& queue_seconds =
      AddHistogram(registry_, "attend_queue_seconds",
                   "Time from a request's arrival to the start of compute.", SecondsBuckets());
  Histogram& compute_seconds =
      AddHistogram(registry_, "attend_compute_seconds",
                   "Time from the start of a request's compute to its end.", SecondsBuckets());
  Histogram& batch_requests =
      AddHistogram(registry_, "attend_batch_requests",
                   "Requests that a worker took together; 1 for a large one.", BatchBuckets());
  Histogram& batch_flops = AddHistogram(
      registry_, "attend_batch_flops",
      "Floating-point operations of requests that a worker took together.", FlopsBuckets());
  Counter& tokens = AddCounter(registry_, "attend_tokens_total", "Queries computed.");
  Counter& flops =
      AddCounter(registry_, "attend_flops_total", "Floating-point operations that requests took.");
  Counter& received_bytes =
      AddCounter(registry_, "attend_received_bytes_total", "Bytes of request messages.");
  Counter& copied_bytes = AddCounter(registry_, "attend_copied_bytes_total",
                                     "Bytes of request tensors that were copied.");
  Counter& sent_bytes =
      AddCounter(registry_, "attend_sent_bytes_total", "Bytes of response messages.");
  Gauge& in_flight = AddGauge(registry_, "attend_in_flight_requests",
                              "Requests that arrived and have no answer yet.");
  Gauge& open_streams = AddGauge(registry_, "attend_open_streams", "Streams that are open.");
  Counter& untaken_answers =
      AddCounter(registry_, "attend_untaken_answers_total",
                 "Calls and streams that were ended since an answer was not taken in time.");
  Gauge& running = AddGauge(registry_, "attend_running_requests", "Requests that are computed.");
  const std::array<Gauge*, kPriorities.size()> queue_depth = AddQueueDepths(registry_);
};

Metrics::Metrics(MetricsOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Metrics::~Metrics() = default;

void Metrics::RequestStarted(Method /*method*/) { impl_->in_flight.Increment(); }

void Metrics::RequestFinished(Method method, const RequestRecord& record) {
  const auto index = static_cast<std::size_t>(method);
  impl_->in_flight.Decrement();
  impl_->requests[index][CodeIndex(record.code)]->Increment();
  impl_->request_seconds[index]->Observe(record.total_seconds);
  if (record.queue_seconds.has_value()) impl_->queue_seconds.Observe(*record.queue_seconds);
  if (record.compute_seconds.has_value()) impl_->compute_seconds.Observe(*record.compute_seconds);
  impl_->received_bytes.Increment(static_cast<double>(record.received_bytes));
  impl_->copied_bytes.Increment(static_cast<double>(record.copied_bytes));
  impl_->sent_bytes.Increment(static_cast<double>(record.sent_bytes));
  impl_->tokens.Increment(static_cast<double>(record.tokens));
  impl_->flops.Increment(static_cast<double>(record.flops));
}

void Metrics::StreamOpened() { impl_->open_streams.Increment(); }

void Metrics::StreamClosed() { impl_->open_streams.Decrement(); }

void Metrics::AnswerNotTaken() { impl_->untaken_answers.Increment(); }

void Metrics::SetQueueDepth(PriorityLabel priority, std::int64_t requests) {
  impl_->queue_depth[static_cast<std::size_t>(priority)]->Set(static_cast<double>(requests));
}

void Metrics::BatchTaken(int requests, std::int64_t flops) {
  impl_->batch_requests.Observe(requests);
  impl_->batch_flops.Observe(static_cast<double>(flops));
}

void Metrics::ComputeStarted() { impl_->running.Increment(); }

void Metrics::ComputeEnded() { impl_->running.Decrement(); }

ActivityTotals Metrics::Totals() const {
  ActivityTotals totals{.tokens = impl_->tokens.Value(),
                        .flops = impl_->flops.Value(),
                        .received_bytes = impl_->received_bytes.Value(),
                        .sent_bytes = impl_->sent_bytes.Value()};
  for (const Method method : {Method::kAttend, Method::kAttendStream}) {
    const auto index = static_cast<std::size_t>(method);
    for (const Counter* counter : impl_->requests[index]) totals.requests += counter->Value();
    totals.ok += impl_->requests[index][CodeIndex(grpc::StatusCode::OK)]->Value();
    const auto& buckets = impl_->request_seconds[index]->Collect().histogram.bucket;
    totals.within_seconds.resize(buckets.size());
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      totals.within_seconds[i].first = buckets[i].upper_bound;
      totals.within_seconds[i].second += static_cast<double>(buckets[i].cumulative_count);
    }
  }
  return totals;
}

void Metrics::RequestDropped(DropReason reason, PriorityLabel priority) {
  const PriorityCounters& counters = impl_->dropped[static_cast<std::size_t>(reason)];
  counters[static_cast<std::size_t>(priority)]->Increment();
}

std::string Metrics::Exposition() const {
  return prometheus::TextSerializer().Serialize(impl_->Collect());
}

}  // namespace attend

// The numbers that the server publishes about itself, in Prometheus' text format.
#ifndef ATTEND_SERVER_OBSERVE_METRICS_H_
#define ATTEND_SERVER_OBSERVE_METRICS_H_

#include <cstdint>
#include <functional>
#include <grpcpp/support/status_code_enum.h>
#include <memory>
#include <optional>
#include <string>

#include "server/observe/recent_activity.h"

namespace attend {

// Values of the `method` label.
enum class Method : std::uint8_t {
  kAttend,
  kGetServerInfo,
  kAttendStream,
  kEstimate,
  kRegisterSharedMemory,
  kUnregisterSharedMemory,
  kGetSharedMemoryStatus,
};

// Values of the `priority` label.
enum class PriorityLabel : std::uint8_t { kHigh, kNormal, kLow };

// Why an admitted or arriving request was never computed, or not to its end: values of the `reason`
// label of attend_dropped_total.
enum class DropReason : std::uint8_t {
  kDeadline,   // its time ran out
  kCancelled,  // the caller gave up or went away
  kQueueFull,  // refused at admission: too many requests or bytes
  kDisplaced,  // waited, and gave its place to a more urgent one
  kNoMemory,   // memory could not be had
  kDraining,   // the server is shutting down
};

// What one call, or one request of a stream, came to.
struct RequestRecord {
  grpc::StatusCode code = grpc::StatusCode::OK;
  double total_seconds = 0;               // from arrival to the answer
  std::optional<double> queue_seconds;    // unset: was never queued
  std::optional<double> compute_seconds;  // unset: was never computed
  std::int64_t received_bytes = 0;        // of the request message
  std::int64_t copied_bytes = 0;          // of its tensors
  std::int64_t sent_bytes = 0;            // of the response message
  std::int64_t tokens = 0;                // queries computed
  std::int64_t flops = 0;                 // computed, as in Stats.flops
};

struct MetricsOptions {
  std::string version;
  std::string cpu_target;
  int compute_threads = 0;
  // AttentionEngine::primitives_created; asked at each scrape, from any thread. Empty: 0.
  std::function<std::int64_t()> gemm_primitives;
  // Likewise SharedMemoryRegistry::num_regions.
  std::function<std::int64_t()> shared_memory_regions;
  // Memory of messages that is in use, and kept for the next ones; likewise.
  std::function<std::int64_t()> lent_buffer_bytes;
  std::function<std::int64_t()> kept_buffer_bytes;
};

// Every series exists from the start, labels are closed sets, and no call looks a series up by
// name. Names and units: see server/README.md.
// Thread-safety: safe from any thread.
class Metrics {
 public:
  explicit Metrics(MetricsOptions options);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Each RequestStarted is followed by exactly one RequestFinished, whatever becomes of the call.
  void RequestStarted(Method method);
  void RequestFinished(Method method, const RequestRecord& record);

  // Each StreamOpened is followed by exactly one StreamClosed. Requests on a stream are counted as
  // above, one by one.
  void StreamOpened();
  void StreamClosed();

  // A call or stream is ended, since its caller did not take an answer in time.
  void AnswerNotTaken();

  // Requests of a priority that are admitted and wait for compute.
  void SetQueueDepth(PriorityLabel priority, std::int64_t requests);

  // A worker took `requests` together, of `flops` in all.
  void BatchTaken(int requests, std::int64_t flops);

  // A request started to compute; ComputeEnded follows.
  void ComputeStarted();
  void ComputeEnded();

  void RequestDropped(DropReason reason, PriorityLabel priority);

  // Of Attend and AttendStream.
  ActivityTotals Totals() const;

  // Everything, in Prometheus' text exposition format.
  std::string Exposition() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_OBSERVE_METRICS_H_

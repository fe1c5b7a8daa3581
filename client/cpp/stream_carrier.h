// Attempts as requests on streams.
#ifndef ATTEND_CLIENT_CPP_STREAM_CARRIER_H_
#define ATTEND_CLIENT_CPP_STREAM_CARRIER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <grpcpp/channel.h>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "attend/v1/attention.grpc.pb.h"
#include "client/cpp/calls_in_flight.h"
#include "client/cpp/carrier.h"
#include "client/cpp/request_stream.h"

namespace attend::client_internal {

// One stream on each channel, opened for the first attempt and anew for the first one after it has
// ended. Metadata and wait_for_ready of an attempt do not reach the stream.
// Thread-safety: safe from any thread.
class StreamCarrier final : public Carrier {
 public:
  explicit StreamCarrier(const std::vector<std::shared_ptr<grpc::Channel>>& channels);

  std::function<void()> Send(const std::shared_ptr<Attempt>& attempt) override;

  // Cancels the streams and waits until they have ended; attempts then end with CANCELLED. Must
  // have been called before the carrier goes.
  void Close();

 private:
  struct Slot {
    std::unique_ptr<v1::AttentionService::Stub> stub;
    absl::Mutex mutex;
    bool closed ABSL_GUARDED_BY(mutex) = false;
    std::shared_ptr<RequestStream> stream ABSL_GUARDED_BY(mutex);
  };

  // A stream that has not ended yet, and whether it was opened for this; null once the carrier is
  // closed.
  std::shared_ptr<RequestStream> LiveStream(Slot& slot, bool& opened);

  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<std::size_t> next_{0};
  const std::shared_ptr<CallsInFlight> calls_ = std::make_shared<CallsInFlight>();
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_STREAM_CARRIER_H_

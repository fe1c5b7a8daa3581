// Calls of Attend over streams and through shared memory.
#ifndef ATTEND_CLIENT_CPP_DISPATCHER_H_
#define ATTEND_CLIENT_CPP_DISPATCHER_H_

#include <grpcpp/channel.h>
#include <memory>
#include <optional>
#include <vector>

#include "client/cpp/attend_call.h"
#include "client/cpp/calls_in_flight.h"
#include "client/cpp/client.h"
#include "client/cpp/client_options.h"
#include "client/cpp/shared_memory.h"
#include "client/cpp/stream_carrier.h"
#include "client/cpp/timers.h"
#include "client/cpp/unary_carrier.h"

namespace attend::client_internal {

// Thread-safety: safe from any thread.
class Dispatcher {
 public:
  // `options` must outlive the dispatcher. `channels` carry the calls, `control` what is asked of
  // the server beside them.
  Dispatcher(const ClientOptions& options,
             const std::vector<std::shared_ptr<grpc::Channel>>& channels,
             const std::shared_ptr<grpc::Channel>& control);
  // Cancels what goes on and waits for its callbacks, so it must not run in one.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // As Client::AttendAsync. Null where no request can be made.
  std::shared_ptr<Cancellable> Start(const AttentionArgs& args, Client::AttendCallback callback,
                                     const CallOptions& call_options);

 private:
  const ClientOptions& options_;
  UnaryCarrier unary_;
  std::optional<StreamCarrier> streams_;
  std::optional<SharedMemory> memory_;
  CallsInFlight calls_;
  Timers timers_;
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_DISPATCHER_H_

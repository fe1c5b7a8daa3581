// How an attempt of a call reaches the server and comes back.
#ifndef ATTEND_CLIENT_CPP_CARRIER_H_
#define ATTEND_CLIENT_CPP_CARRIER_H_

#include <chrono>
#include <functional>
#include <grpcpp/support/status.h>
#include <memory>
#include <optional>

#include "attend/v1/attention.pb.h"
#include "client/cpp/client_options.h"

namespace attend::client_internal {

// What became of an attempt.
struct AttemptEnd {
  grpc::Status status;
  v1::AttendResponse response;  // where the status is OK
  // What the server said of another attempt in trailing metadata; negative: make none.
  std::optional<std::chrono::milliseconds> pushback;
  bool sent = true;  // false: no server has seen it
  // The server is done with the request: it reads and writes its shared memory no more.
  bool settled = true;
};

// An attempt, as who carries it sees it.
class Attempt {
 public:
  virtual ~Attempt() = default;

  // The request, of which the carrier sets the id and the timeout, until OnEnd.
  virtual v1::AttendStreamRequest& message() = 0;
  virtual const CallOptions& options() const = 0;
  // What is left of the call's time, at least 1 ns; nothing where there is no limit.
  virtual std::optional<std::chrono::nanoseconds> time_left() const = 0;

  // Called exactly once, by the carrier, perhaps before Send returns.
  virtual void OnEnd(AttemptEnd end) = 0;
};

// Thread-safety: safe from any thread.
class Carrier {
 public:
  virtual ~Carrier() = default;

  // Starts the attempt. What it returns gives the attempt up, from any thread: it ends with
  // CANCELLED, or as it was about to. It does nothing for one that has ended.
  virtual std::function<void()> Send(const std::shared_ptr<Attempt>& attempt) = 0;
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_CARRIER_H_

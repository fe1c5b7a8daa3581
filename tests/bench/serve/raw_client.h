// A client that costs as little as gRPC lets it: what it sends is serialized once, and what it
// receives is counted and not parsed. Client and server share the machine in these benchmarks.
#ifndef ATTEND_TESTS_BENCH_SERVE_RAW_CLIENT_H_
#define ATTEND_TESTS_BENCH_SERVE_RAW_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <string>
#include <vector>

#include "client/load/transport.h"

namespace attend::bench {

// Ends the program: there is nothing to measure on.
[[noreturn]] void Die(const std::string& what);

// Thread-safety: safe from any thread. Calls must have ended before it goes.
class RawClient {
 public:
  using Done = std::function<void(const grpc::Status& status, const grpc::ByteBuffer& answer)>;

  RawClient(const std::string& target, int connections);

  // Calls Attend with the bytes of a request. `done` runs on a thread of gRPC; it may call again.
  // `timeout`: 0 for none.
  void Attend(int connection, const grpc::ByteBuffer& request, std::chrono::milliseconds timeout,
              Done done);

  // The bytes of one answer, waited for. Dies on an error.
  grpc::ByteBuffer AttendAndWait(const grpc::ByteBuffer& request);

  // Whether the answer, waited for, was OK.
  bool TryAttend(const grpc::ByteBuffer& request);

  grpc::GenericStub& stub(int connection) { return *stubs_[static_cast<std::size_t>(connection)]; }

 private:
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
};

// How many calls are kept in flight.
struct Cell {
  int connections = 1;
  int in_flight = 1;  // on each
};

// Calls a second of a closed loop: of all calls that start within `duration`, up to the last
// answer. `client` must have the cell's connections. Dies on an error.
double ClosedLoopRate(RawClient& client, const grpc::ByteBuffer& request, const Cell& cell,
                      std::chrono::nanoseconds duration);

// Sends one and the same request, whatever is asked of it; answers are empty, and calls cannot be
// given up.
class RawTransport : public load::Transport {
 public:
  RawTransport(RawClient& client, const grpc::ByteBuffer& request)
      : client_(client), request_(request) {}

  std::function<void()> Send(const AttentionArgs& args, const CallOptions& options,
                             Client::AttendCallback callback) override;

 private:
  RawClient& client_;
  const grpc::ByteBuffer& request_;
};

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_SERVE_RAW_CLIENT_H_

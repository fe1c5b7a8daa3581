// The fastest server that gRPC allows: bytes in, slices of them out, nothing copied or parsed.
#ifndef ATTEND_TESTS_BENCH_SERVE_ECHO_SERVER_H_
#define ATTEND_TESTS_BENCH_SERVE_ECHO_SERVER_H_

#include <cstdint>
#include <grpcpp/support/byte_buffer.h>
#include <memory>
#include <string>

#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace attend::bench {

// A request of `request_bytes` (at least 8) that is answered with `answer_bytes` of its own, at
// most so many.
grpc::ByteBuffer EchoRequest(std::int64_t request_bytes, std::int64_t answer_bytes);

// Serves on a free TCP port, which it writes to `port_file`, and never returns. For a process of
// its own, as attend-server is one.
[[noreturn]] void RunEchoServer(const std::string& port_file);

// RunEchoServer in a child that is this program again, with "--echo-server FILE".
class EchoServer {
 public:
  EchoServer();
  const std::string& tcp_target() const { return tcp_target_; }

 private:
  testing::TempFolder folder_;
  std::unique_ptr<testing::ChildProcess> process_;
  std::string tcp_target_;
};

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_SERVE_ECHO_SERVER_H_

// A request whose tensors lie in shared memory.
#ifndef ATTEND_TESTS_BENCH_SERVE_SHARED_REQUEST_H_
#define ATTEND_TESTS_BENCH_SERVE_SHARED_REQUEST_H_

#include <grpcpp/support/byte_buffer.h>
#include <string>

#include "attend/v1/attention.pb.h"
#include "tests/bench/serve/raw_client.h"
#include "tests/support/shared_memory_object.h"

namespace attend::bench {

// Puts query, key, value and the place for the output into an object that the server at `target`, a
// Unix socket, gets to know. The region stays registered.
class SharedRequest {
 public:
  // `request`: with value_dim equal to head_dim. Dies on an error.
  SharedRequest(const std::string& target, const v1::AttendRequest& request);

  // To be sent as a request's bytes; may be in flight many times over, as all of its answers are
  // the same.
  const grpc::ByteBuffer& bytes() const { return bytes_; }

  // Sends it, and dies unless what the server writes is what it answers to `request`.
  void Check(RawClient& client, const v1::AttendRequest& request) const;

 private:
  testing::SharedMemoryObject object_;
  std::size_t output_offset_ = 0;
  std::size_t output_bytes_ = 0;
  grpc::ByteBuffer bytes_;
};

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_SERVE_SHARED_REQUEST_H_

// The results of core as an AttendResponse or an AttendStreamResponse.
#ifndef ATTEND_SERVER_WIRE_ATTEND_RESPONSE_H_
#define ATTEND_SERVER_WIRE_ATTEND_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attend/v1/attention.pb.h"
#include "core/attention/attention.h"
#include "core/base/attention_problem.h"
#include "core/base/buffer_pool.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"
#include "server/schedule/scheduler.h"

namespace attend {

// At least the size of the response's message, and close to it. Saturates at the largest int64.
std::int64_t ResponseBytes(const AttentionProblem& problem);

// INVALID_ARGUMENT, naming the field of the request to ask less of, if the response could be larger
// than `max_message_bytes`.
absl::Status CheckResponseSize(const AttentionProblem& problem, std::int64_t max_message_bytes);

// A response whose tensors are memory of a pool, which the kernel writes and gRPC sends as it is.
// In order: Allocate once, then Finish or FinishOnStream once.
// Thread-safety: for one thread at a time.
class ResponseMessage {
 public:
  // Makes the results that the problem wants, zeros for now, and says where: the addresses hold
  // until Finish. `max_name_bytes` bounds the server's name in the stats. CheckResponseSize must
  // have passed.
  // Errors: RESOURCE_EXHAUSTED if memory cannot be had.
  absl::StatusOr<AttentionOutputs> Allocate(const AttentionProblem& problem, BufferPool& pool,
                                            std::size_t max_name_bytes);

  // The AttendResponse, which owns the memory now. Nothing is copied but what stands around the
  // tensors' data.
  grpc::ByteBuffer Finish(const v1::Stats& stats);

  // The same as the AttendStreamResponse to the request of that id.
  grpc::ByteBuffer FinishOnStream(const v1::Stats& stats, std::uint64_t id);

 private:
  struct Result {
    int field = 0;  // of AttendResponse
    DType dtype = DType::kFloat32;
    Dims shape;
    std::size_t bytes = 0;
    std::size_t begin = 0;  // of the data; what stands before it ends here
  };

  void Plan(int field, DType dtype, const Dims& shape);
  // Writes what stands before each result's data, and begin_ of what is to be sent. Returns the
  // size of the whole.
  std::size_t WriteHeads(const v1::Stats& stats);
  grpc::ByteBuffer Send();

  PooledBuffer memory_;
  absl::InlinedVector<Result, 4> results_;
  absl::InlinedVector<std::size_t, 4> heads_;  // where what belongs to each result begins
  std::size_t size_ = 0;                       // of the memory
};

// The AttendStreamResponse that tells an error, with its details. `status` must not be OK.
grpc::ByteBuffer StreamError(const grpc::Status& status, std::uint64_t id);

// What happened to the request, on the server of that name.
void FillStats(const AttentionProblem& problem, const TaskStats& stats, absl::string_view server,
               v1::Stats& to);

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_ATTEND_RESPONSE_H_

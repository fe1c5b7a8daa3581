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
#include "server/wire/shared_memory_range.h"

namespace attend {

// At least the size of the response's message, and close to it. Saturates at the largest int64.
std::int64_t ResponseBytes(const AttentionProblem& problem);

// Where results go that do not travel in the response.
struct ResultTargets {
  SharedMemoryRange output;
  SharedMemoryRange lse;
  SharedMemoryRange weights;
  SharedMemoryRange scores;
};

// The targets that a request names. `output` must outlive what uses them.
// Errors: as SharedMemoryRange::Find; INVALID_ARGUMENT, naming the target, for one of another size
// than its result, for one whose result is not asked for, and, naming the other one too, for one
// that overlaps another one.
absl::StatusOr<ResultTargets> FindTargets(const v1::OutputOptions& output,
                                          const AttentionProblem& problem,
                                          const SharedMemoryAccess& access);

// INVALID_ARGUMENT, naming the field of the request to ask less of, if the response, without what
// goes to targets, could be larger than `max_message_bytes`.
absl::Status CheckResponseSize(const AttentionProblem& problem, const ResultTargets& targets,
                               std::int64_t max_message_bytes);

// A response whose tensors are memory of a pool, which the kernel writes and gRPC sends as it is.
// In order: SetTargets if there are any, Allocate once, then WriteTargets once and Finish or
// FinishOnStream once.
// Thread-safety: for one thread at a time.
class ResponseMessage {
 public:
  // `options`, which named them, must outlive the object.
  void SetTargets(ResultTargets targets, const v1::OutputOptions& options);

  // Makes room for the results that the problem wants, and says where: the addresses hold until
  // Finish. The pool's memory may hold what others left there: each byte is to be written, as the
  // kernel does, before Finish. `max_name_bytes` bounds the server's name in the stats.
  // CheckResponseSize must have passed. Errors: RESOURCE_EXHAUSTED if memory cannot be had.
  absl::StatusOr<AttentionOutputs> Allocate(const AttentionProblem& problem, BufferPool& pool,
                                            std::size_t max_name_bytes);

  // Writes what is computed to its targets. Errors: as SharedMemoryRange::Write.
  absl::Status WriteTargets() const;

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
    // Of a result that goes to shared memory; null otherwise.
    const SharedMemoryRange* target = nullptr;
    const v1::SharedMemorySlice* slice = nullptr;

    std::size_t sent_bytes() const { return target == nullptr ? bytes : 0; }
  };

  void Plan(int field, DType dtype, const Dims& shape, const SharedMemoryRange& target,
            const v1::SharedMemorySlice& slice);
  // Writes what stands before each result's data, and begin_ of what is to be sent. Returns the
  // size of the whole.
  std::size_t WriteHeads(const v1::Stats& stats);
  grpc::ByteBuffer Send();

  ResultTargets targets_;
  const v1::OutputOptions* options_ = &v1::OutputOptions::default_instance();
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

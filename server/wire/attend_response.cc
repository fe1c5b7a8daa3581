#include "server/wire/attend_response.h"

#include <cstddef>
#include <limits>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/dtype.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "server/schedule/saturating_add.h"
#include "server/wire/duration.h"
#include "server/wire/tensor.h"

namespace attend {

namespace {

// Bounds the response without its tensors' bytes: four shapes and the stats, of which only the
// server's name varies, and the settings keep that short.
constexpr std::int64_t kEnvelopeBytes = 1024;
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

std::int64_t TensorBytes(DType dtype, const Dims& shape) {
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(shape, "response");
  // Shapes that the request itself never held (query_len x kv_len) may overflow.
  return count.ok() ? *count * static_cast<std::int64_t>(SizeOf(dtype)) : kHuge;
}

// Bytes of each result; 0 for one that is not wanted.
struct ResultBytes {
  std::int64_t output = 0;
  std::int64_t lse = 0;
  std::int64_t weights = 0;
  std::int64_t scores = 0;
};

ResultBytes BytesOfResults(const AttentionProblem& problem) {
  ResultBytes bytes;
  bytes.output = TensorBytes(problem.output_dtype(), problem.output_shape());
  if (problem.wants_lse()) bytes.lse = TensorBytes(DType::kFloat32, problem.lse_shape());
  if (problem.wants_weights()) bytes.weights = TensorBytes(DType::kFloat32, problem.score_shape());
  if (problem.score_stage() != ScoreStage::kNone) {
    bytes.scores = TensorBytes(DType::kFloat32, problem.score_shape());
  }
  return bytes;
}

// The field whose result is the largest.
absl::string_view LargestAsk(const ResultBytes& bytes) {
  const std::int64_t score_like = bytes.weights > 0 ? bytes.weights : bytes.scores;
  if (score_like > bytes.output) return bytes.weights > 0 ? "output.weights" : "output.scores";
  return bytes.lse > bytes.output ? "output.lse" : "query.shape";
}

std::byte* AllocateTensor(DType dtype, const Dims& shape, v1::Tensor& tensor) {
  tensor.set_dtype(ToProto(dtype));
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  std::string& data = *tensor.mutable_data();
  // Zeros first: whatever a kernel should leave unwritten is never somebody else's memory.
  data.resize(static_cast<std::size_t>(TensorBytes(dtype, shape)));
  return reinterpret_cast<std::byte*>(data.data());
}

}  // namespace

std::int64_t ResponseBytes(const AttentionProblem& problem) {
  const ResultBytes bytes = BytesOfResults(problem);
  return SaturatingAdd(SaturatingAdd(bytes.output, bytes.lse),
                       SaturatingAdd(SaturatingAdd(bytes.weights, bytes.scores), kEnvelopeBytes));
}

absl::Status CheckResponseSize(const AttentionProblem& problem, std::int64_t max_message_bytes) {
  const std::int64_t bytes = ResponseBytes(problem);
  if (bytes <= max_message_bytes) return absl::OkStatus();
  return InvalidField(LargestAsk(BytesOfResults(problem)),
                      absl::StrCat("asks for a response of ", bytes, " bytes; expected at most ",
                                   max_message_bytes, ": ask for less, or split the request"));
}

absl::StatusOr<AttentionOutputs> AllocateResponse(const AttentionProblem& problem,
                                                  v1::AttendResponse& response) {
  try {
    AttentionOutputs outputs;
    outputs.output =
        AllocateTensor(problem.output_dtype(), problem.output_shape(), *response.mutable_output());
    if (problem.wants_lse()) {
      outputs.lse = AllocateTensor(DType::kFloat32, problem.lse_shape(), *response.mutable_lse());
    }
    if (problem.wants_weights()) {
      outputs.weights =
          AllocateTensor(DType::kFloat32, problem.score_shape(), *response.mutable_weights());
    }
    if (problem.score_stage() != ScoreStage::kNone) {
      outputs.scores =
          AllocateTensor(DType::kFloat32, problem.score_shape(), *response.mutable_scores());
    }
    return outputs;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for the response; try again later");
  }
}

void FillStats(const AttentionProblem& problem, const TaskStats& stats, absl::string_view server,
               v1::Stats& to) {
  *to.mutable_queue() = ToProtoDuration(stats.queue);
  *to.mutable_compute() = ToProtoDuration(stats.compute);
  to.set_batch_size(stats.batch_size);
  to.set_dot_products(problem.dot_products());
  to.set_flops(problem.flops());
  to.set_server(std::string(server));
}

}  // namespace attend

#include "server/wire/attend_response.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/slice.h>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/aligned_buffer.h"
#include "core/base/dtype.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "server/schedule/saturating_add.h"
#include "server/wire/duration.h"
#include "server/wire/tensor.h"

namespace attend {

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// Bounds the response without its tensors' bytes: four shapes, a stream's id and the stats, of
// which only the server's name varies, and the settings keep that short.
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

// With what stands around them.
std::int64_t SumOf(const ResultBytes& bytes) {
  return SaturatingAdd(SaturatingAdd(bytes.output, bytes.lse),
                       SaturatingAdd(SaturatingAdd(bytes.weights, bytes.scores), kEnvelopeBytes));
}

// The field whose result is the largest.
absl::string_view LargestAsk(const ResultBytes& bytes) {
  const std::int64_t score_like = bytes.weights > 0 ? bytes.weights : bytes.scores;
  if (score_like > bytes.output) return bytes.weights > 0 ? "output.weights" : "output.scores";
  return bytes.lse > bytes.output ? "output.lse" : "query.shape";
}

// Before a result's data stand its tag and length, the tensor's tag and length, its dtype and shape
// of at most kMaxRank sizes; before the first also the stats (a tag, a length, and numbers of at
// most 80 bytes beside the server's name) and a stream's id and lengths.
constexpr std::size_t kTensorHeadBytes = 128;
constexpr std::size_t kFirstHeadBytes = 256;

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Writes bytes of the wire format one before the other, from `end` down.
class Prepender {
 public:
  explicit Prepender(std::byte* end) : begin_(end) {}

  void Varint(std::uint64_t value) {
    std::uint8_t bytes[10];
    Bytes(bytes, CodedOutputStream::WriteVarint64ToArray(value, bytes) - bytes);
  }
  void Tag(int field, WireFormatLite::WireType type) {
    Varint(WireFormatLite::MakeTag(field, type));
  }
  // The tag and length of a field whose content begins here.
  void Field(int field, std::size_t size) {
    Varint(size);
    Tag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }
  void Message(const google::protobuf::MessageLite& message) {
    const std::size_t size = message.ByteSizeLong();
    begin_ -= size;
    message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(begin_));
  }

  std::byte* begin() const { return begin_; }

 private:
  void Bytes(const std::uint8_t* bytes, std::ptrdiff_t size) {
    begin_ -= size;
    std::memcpy(begin_, bytes, static_cast<std::size_t>(size));
  }

  std::byte* begin_;
};

// Protobuf leaves a 0 out.
void PrependId(std::uint64_t id, Prepender& head) {
  if (id == 0) return;
  head.Varint(id);
  head.Tag(v1::AttendStreamResponse::kIdFieldNumber, WireFormatLite::WIRETYPE_VARINT);
}

// One result would spoil the other.
absl::Status CheckTargetsApart(const ResultTargets& targets) {
  const std::array all = {&targets.output, &targets.lse, &targets.weights, &targets.scores};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!all[i]->Overlaps(*all[j])) continue;
      return InvalidField(all[i]->field(), absl::StrCat("overlaps ", all[j]->field(),
                                                        "; expected ranges that share no byte"));
    }
  }
  return absl::OkStatus();
}

std::byte*& OutputOf(int field, AttentionOutputs& outputs) {
  switch (field) {
    case v1::AttendResponse::kLseFieldNumber:
      return outputs.lse;
    case v1::AttendResponse::kWeightsFieldNumber:
      return outputs.weights;
    case v1::AttendResponse::kScoresFieldNumber:
      return outputs.scores;
    default:
      return outputs.output;
  }
}

}  // namespace

std::int64_t ResponseBytes(const AttentionProblem& problem) {
  return SumOf(BytesOfResults(problem));
}

absl::StatusOr<ResultTargets> FindTargets(const v1::OutputOptions& output,
                                          const AttentionProblem& problem,
                                          const SharedMemoryAccess& access) {
  const ResultBytes bytes = BytesOfResults(problem);
  absl::Status status;
  const auto find = [&](bool present, const v1::SharedMemorySlice& slice, bool wanted,
                        std::int64_t size, absl::string_view field, SharedMemoryRange& to) {
    if (!present || !status.ok()) return;
    if (!wanted) {
      status = InvalidField(field,
                            "is given, but its result is not asked for; ask for it, or "
                            "leave the target out");
    } else if (slice.size_bytes() != static_cast<std::uint64_t>(size)) {
      status = InvalidField(
          absl::StrCat(field, ".size_bytes"),
          absl::StrCat("is ", slice.size_bytes(), "; expected ", size, ", the size of the result"));
    } else {
      absl::StatusOr<SharedMemoryRange> range = SharedMemoryRange::Find(slice, access, field);
      if (range.ok()) to = *std::move(range);
      status = range.status();
    }
  };
  ResultTargets targets;
  find(output.has_output_target(), output.output_target(), true, bytes.output,
       "output.output_target", targets.output);
  find(output.has_lse_target(), output.lse_target(), problem.wants_lse(), bytes.lse,
       "output.lse_target", targets.lse);
  find(output.has_weights_target(), output.weights_target(), problem.wants_weights(), bytes.weights,
       "output.weights_target", targets.weights);
  find(output.has_scores_target(), output.scores_target(),
       problem.score_stage() != ScoreStage::kNone, bytes.scores, "output.scores_target",
       targets.scores);
  status.Update(CheckTargetsApart(targets));
  if (!status.ok()) return status;
  return targets;
}

absl::Status CheckResponseSize(const AttentionProblem& problem, const ResultTargets& targets,
                               std::int64_t max_message_bytes) {
  ResultBytes sent = BytesOfResults(problem);
  if (targets.output.present()) sent.output = 0;
  if (targets.lse.present()) sent.lse = 0;
  if (targets.weights.present()) sent.weights = 0;
  if (targets.scores.present()) sent.scores = 0;
  const std::int64_t bytes = SumOf(sent);
  if (bytes <= max_message_bytes) return absl::OkStatus();
  return InvalidField(LargestAsk(sent),
                      absl::StrCat("asks for a response of ", bytes, " bytes; expected at most ",
                                   max_message_bytes, ": ask for less, or split the request"));
}

void ResponseMessage::SetTargets(ResultTargets targets, const v1::OutputOptions& options) {
  targets_ = std::move(targets);
  options_ = &options;
}

void ResponseMessage::Plan(int field, DType dtype, const Dims& shape,
                           const SharedMemoryRange& target, const v1::SharedMemorySlice& slice) {
  const auto bytes = static_cast<std::size_t>(TensorBytes(dtype, shape));
  // A handle stands in the head of a result that goes to shared memory.
  const std::size_t head = kTensorHeadBytes + (target.present() ? slice.ByteSizeLong() : 0);
  const std::size_t begin = Aligned(size_ + head);
  results_.push_back({field, dtype, shape, bytes, begin});
  if (target.present()) {
    results_.back().target = &target;
    results_.back().slice = &slice;
  }
  size_ = begin + bytes;
}

absl::StatusOr<AttentionOutputs> ResponseMessage::Allocate(const AttentionProblem& problem,
                                                           BufferPool& pool,
                                                           std::size_t max_name_bytes) {
  size_ = kFirstHeadBytes + max_name_bytes;
  Plan(v1::AttendResponse::kOutputFieldNumber, problem.output_dtype(), problem.output_shape(),
       targets_.output, options_->output_target());
  if (problem.wants_lse()) {
    Plan(v1::AttendResponse::kLseFieldNumber, DType::kFloat32, problem.lse_shape(), targets_.lse,
         options_->lse_target());
  }
  if (problem.wants_weights()) {
    Plan(v1::AttendResponse::kWeightsFieldNumber, DType::kFloat32, problem.score_shape(),
         targets_.weights, options_->weights_target());
  }
  if (problem.score_stage() != ScoreStage::kNone) {
    Plan(v1::AttendResponse::kScoresFieldNumber, DType::kFloat32, problem.score_shape(),
         targets_.scores, options_->scores_target());
  }
  memory_ = pool.Acquire(static_cast<std::int64_t>(size_));
  if (!memory_.ok()) {
    return absl::ResourceExhaustedError("no memory for the response; try again later");
  }
  AttentionOutputs outputs;
  for (const Result& result : results_) {
    OutputOf(result.field, outputs) = memory_.data() + result.begin;
  }
  return outputs;
}

absl::Status ResponseMessage::WriteTargets() const {
  absl::Status status;
  for (const Result& result : results_) {
    if (result.target == nullptr) continue;
    status.Update(result.target->Write({memory_.data() + result.begin, result.bytes}));
  }
  return status;
}

std::size_t ResponseMessage::WriteHeads(const v1::Stats& stats) {
  std::size_t total = 0;
  heads_.resize(results_.size());
  for (std::size_t i = results_.size(); i-- > 0;) {
    const Result& result = results_[i];
    v1::Tensor tensor;
    tensor.set_dtype(ToProto(result.dtype));
    tensor.mutable_shape()->Assign(result.shape.begin(), result.shape.end());
    std::byte* data = memory_.data() + result.begin;
    Prepender head(data);
    if (result.target != nullptr) {
      *tensor.mutable_shared_memory() = *result.slice;
    } else {
      head.Field(v1::Tensor::kDataFieldNumber, result.bytes);
    }
    head.Message(tensor);
    head.Field(result.field, static_cast<std::size_t>(data - head.begin()) + result.sent_bytes());
    if (i == 0) {
      head.Message(stats);
      head.Field(v1::AttendResponse::kStatsFieldNumber, stats.ByteSizeLong());
    }
    heads_[i] = static_cast<std::size_t>(head.begin() - memory_.data());
    total += result.begin + result.sent_bytes() - heads_[i];
  }
  return total;
}

grpc::ByteBuffer ResponseMessage::Finish(const v1::Stats& stats) {
  WriteHeads(stats);
  return Send();
}

grpc::ByteBuffer ResponseMessage::FinishOnStream(const v1::Stats& stats, std::uint64_t id) {
  const std::size_t size = WriteHeads(stats);
  Prepender head(memory_.data() + heads_[0]);
  head.Field(v1::AttendStreamResponse::kResponseFieldNumber, size);
  PrependId(id, head);
  heads_[0] = static_cast<std::size_t>(head.begin() - memory_.data());
  return Send();
}

grpc::ByteBuffer ResponseMessage::Send() {
  std::byte* memory = memory_.Release();
  const grpc::Slice whole(memory, size_, &BufferPool::Return, memory);
  absl::InlinedVector<grpc::Slice, 4> slices;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    slices.push_back(whole.sub(heads_[i], results_[i].begin + results_[i].sent_bytes()));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer StreamError(const grpc::Status& status, std::uint64_t id) {
  // The details are an attend.v1.Error (see ToGrpcStatus), which is what the field holds.
  const std::string error = status.error_details();
  std::array<std::byte, kFirstHeadBytes> memory;
  Prepender head(memory.data() + memory.size());
  head.Field(v1::AttendStreamResponse::kErrorFieldNumber, error.size());
  PrependId(id, head);
  const std::array<grpc::Slice, 2> slices = {
      grpc::Slice(head.begin(),
                  static_cast<std::size_t>(memory.data() + memory.size() - head.begin())),
      grpc::Slice(error)};
  return grpc::ByteBuffer(slices.data(), error.empty() ? 1 : 2);
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

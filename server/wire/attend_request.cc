#include "server/wire/attend_request.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <google/protobuf/repeated_field.h>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "server/wire/duration.h"
#include "server/wire/tensor.h"
#include "server/wire/unknown_fields.h"

namespace attend {

namespace {

absl::Status UnknownValue(absl::string_view field, int value, absl::string_view type) {
  return InvalidField(field, absl::StrCat("is ", value, "; expected a value of ", type));
}

absl::Status ConvertLayout(v1::Layout layout, Layout& to) {
  switch (layout) {
    case v1::LAYOUT_UNSPECIFIED:
    case v1::LAYOUT_BATCH_HEADS_LENGTH:
      to = Layout::kBatchHeadsLength;
      return absl::OkStatus();
    case v1::LAYOUT_BATCH_LENGTH_HEADS:
      to = Layout::kBatchLengthHeads;
      return absl::OkStatus();
    case v1::LAYOUT_PACKED:
      to = Layout::kPacked;
      return absl::OkStatus();
    default:
      return UnknownValue("layout", layout, "Layout");
  }
}

absl::Status ConvertAlignment(v1::Alignment alignment, Alignment& to) {
  switch (alignment) {
    case v1::ALIGNMENT_UNSPECIFIED:
    case v1::ALIGNMENT_FIRST:
      to = Alignment::kFirst;
      return absl::OkStatus();
    case v1::ALIGNMENT_LAST:
      to = Alignment::kLast;
      return absl::OkStatus();
    case v1::ALIGNMENT_OFFSETS:
      to = Alignment::kOffsets;
      return absl::OkStatus();
    default:
      return UnknownValue("options.alignment", alignment, "Alignment");
  }
}

absl::Status ConvertScoreStage(v1::ScoreStage stage, ScoreStage& to) {
  switch (stage) {
    case v1::SCORE_STAGE_UNSPECIFIED:
      to = ScoreStage::kNone;
      return absl::OkStatus();
    case v1::SCORE_STAGE_SCALED:
      to = ScoreStage::kScaled;
      return absl::OkStatus();
    case v1::SCORE_STAGE_CAPPED:
      to = ScoreStage::kCapped;
      return absl::OkStatus();
    case v1::SCORE_STAGE_BIASED:
      to = ScoreStage::kBiased;
      return absl::OkStatus();
    default:
      return UnknownValue("output.scores", stage, "ScoreStage");
  }
}

// A list with at most one value for each item.
absl::Status ConvertPerItem(const google::protobuf::RepeatedField<std::int64_t>& values,
                            absl::string_view field, const AttentionLimits& limits,
                            std::vector<std::int64_t>& to) {
  if (values.size() > limits.max_batch) {
    return InvalidField(
        field, absl::StrCat("has ", values.size(), " values; expected at most ", limits.max_batch));
  }
  to.assign(values.begin(), values.end());
  return absl::OkStatus();
}

// The tensors of one request: what their messages say, and where their elements are.
class TensorConverter {
 public:
  explicit TensorConverter(TensorPayloads payloads) : payloads_(payloads) {}

  absl::Status Required(bool present, const v1::Tensor& message, RequestTensor tensor,
                        TensorView& to) const {
    if (!present) return InvalidField(FieldOf(tensor), "is missing; expected a tensor");
    return Convert(message, tensor, to);
  }

  absl::Status Optional(bool present, const v1::Tensor& message, RequestTensor tensor,
                        std::optional<TensorView>& to) const {
    if (!present) return absl::OkStatus();
    return Convert(message, tensor, to.emplace());
  }

 private:
  absl::Status Convert(const v1::Tensor& message, RequestTensor tensor, TensorView& to) const {
    absl::StatusOr<TensorView> view =
        ToTensorView(message, payloads_[static_cast<std::size_t>(tensor)], FieldOf(tensor));
    if (!view.ok()) return view.status();
    to = *std::move(view);
    return absl::OkStatus();
  }

  const TensorPayloads payloads_;
};

absl::Status ConvertBlockMask(const v1::BlockMask& mask, const TensorConverter& tensors,
                              BlockMask& to) {
  absl::Status status = RefuseUnknownFields(mask, "options.block_mask");
  to.query_block_size = mask.query_block_size();
  to.key_block_size = mask.key_block_size();
  status.Update(
      tensors.Required(mask.has_blocks(), mask.blocks(), RequestTensor::kBlocks, to.blocks));
  return status;
}

absl::Status ConvertOptions(const v1::AttentionOptions& options, const TensorConverter& tensors,
                            const AttentionLimits& limits, AttentionOptions& to) {
  absl::Status status = RefuseUnknownFields(options, "options");
  if (options.has_scale()) to.scale = options.scale();
  to.softcap = options.softcap();
  to.causal = options.causal();
  status.Update(ConvertAlignment(options.alignment(), to.alignment));
  status.Update(
      ConvertPerItem(options.query_offsets(), "options.query_offsets", limits, to.query_offsets));
  if (options.has_window_left()) to.window_left = options.window_left();
  if (options.has_window_right()) to.window_right = options.window_right();
  status.Update(tensors.Optional(options.has_alibi_slopes(), options.alibi_slopes(),
                                 RequestTensor::kAlibiSlopes, to.alibi_slopes));
  status.Update(
      tensors.Optional(options.has_sinks(), options.sinks(), RequestTensor::kSinks, to.sinks));
  if (options.has_block_mask()) {
    status.Update(ConvertBlockMask(options.block_mask(), tensors, to.block_mask.emplace()));
  }
  return status;
}

absl::Status ConvertOutput(const v1::OutputOptions& output, const SharedMemoryAccess& access,
                           OutputOptions& to) {
  absl::Status status = RefuseUnknownFields(output, "output");
  if (output.dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    absl::StatusOr<DType> dtype = ToDType(output.dtype(), "output.dtype");
    if (dtype.ok()) to.dtype = *dtype;
    status.Update(dtype.status());
  }
  to.lse = output.lse();
  to.weights = output.weights();
  status.Update(ConvertScoreStage(output.scores(), to.scores));
  const auto check_target = [&](bool present, absl::string_view field) {
    if (present) status.Update(CheckSharedMemoryAccess(access, field));
  };
  check_target(output.has_output_target(), "output.output_target");
  check_target(output.has_lse_target(), "output.lse_target");
  check_target(output.has_weights_target(), "output.weights_target");
  check_target(output.has_scores_target(), "output.scores_target");
  return status;
}

absl::Status ConvertTensors(const v1::AttendRequest& request, const TensorConverter& tensors,
                            AttentionArgs& to) {
  absl::Status status =
      tensors.Required(request.has_query(), request.query(), RequestTensor::kQuery, to.query);
  status.Update(tensors.Required(request.has_key(), request.key(), RequestTensor::kKey, to.key));
  status.Update(
      tensors.Required(request.has_value(), request.value(), RequestTensor::kValue, to.value));
  status.Update(tensors.Optional(request.has_boolean_mask(), request.boolean_mask(),
                                 RequestTensor::kBooleanMask, to.boolean_mask));
  status.Update(tensors.Optional(request.has_additive_mask(), request.additive_mask(),
                                 RequestTensor::kAdditiveMask, to.additive_mask));
  return status;
}

// Null where the message that would hold the tensor is not there.
const v1::Tensor* IfPresent(bool present, const v1::Tensor& tensor) {
  return present ? &tensor : nullptr;
}

}  // namespace

const v1::Tensor* MessageOf(const v1::AttendRequest& request, RequestTensor tensor) {
  const v1::AttentionOptions& options = request.options();
  switch (tensor) {
    case RequestTensor::kQuery:
      return IfPresent(request.has_query(), request.query());
    case RequestTensor::kKey:
      return IfPresent(request.has_key(), request.key());
    case RequestTensor::kValue:
      return IfPresent(request.has_value(), request.value());
    case RequestTensor::kBooleanMask:
      return IfPresent(request.has_boolean_mask(), request.boolean_mask());
    case RequestTensor::kAdditiveMask:
      return IfPresent(request.has_additive_mask(), request.additive_mask());
    case RequestTensor::kAlibiSlopes:
      return IfPresent(options.has_alibi_slopes(), options.alibi_slopes());
    case RequestTensor::kSinks:
      return IfPresent(options.has_sinks(), options.sinks());
    case RequestTensor::kBlocks:
      return IfPresent(options.block_mask().has_blocks(), options.block_mask().blocks());
  }
  return nullptr;
}

// The first error counts; Status::Update keeps it.
absl::StatusOr<AttentionArgs> ToAttentionArgs(const v1::AttendRequest& request,
                                              TensorPayloads payloads,
                                              const AttentionLimits& limits,
                                              const SharedMemoryAccess& access) {
  const TensorConverter tensors(payloads);
  AttentionArgs args;
  absl::Status status = RefuseUnknownFields(request, "request");
  status.Update(ConvertLayout(request.layout(), args.layout));
  status.Update(ConvertTensors(request, tensors, args));
  status.Update(
      ConvertPerItem(request.query_lengths(), "query_lengths", limits, args.query_lengths));
  status.Update(ConvertPerItem(request.kv_lengths(), "kv_lengths", limits, args.kv_lengths));
  status.Update(ConvertOptions(request.options(), tensors, limits, args.options));
  status.Update(ConvertOutput(request.output(), access, args.output));
  if (!status.ok()) return status;
  return args;
}

absl::StatusOr<AttentionArgs> ToAttentionArgs(const v1::AttendRequest& request,
                                              const AttentionLimits& limits) {
  std::array<std::span<const std::byte>, kNumRequestTensors> payloads;
  for (std::size_t i = 0; i < kNumRequestTensors; ++i) {
    const auto tensor = static_cast<RequestTensor>(i);
    const v1::Tensor* message = MessageOf(request, tensor);
    if (message == nullptr) continue;
    if (message->has_shared_memory()) {
      return CheckSharedMemoryAccess({}, absl::StrCat(FieldOf(tensor), ".shared_memory"));
    }
    payloads[i] = std::as_bytes(std::span(message->data()));
  }
  return ToAttentionArgs(request, payloads, limits, {});
}

absl::StatusOr<absl::Duration> ToTimeout(const v1::AttendRequest& request) {
  if (!request.has_timeout()) return absl::InfiniteDuration();
  return FromPositiveProtoDuration(request.timeout(), "timeout");
}

}  // namespace attend

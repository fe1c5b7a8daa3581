#include "tests/support/requests.h"

#include <cmath>
#include <random>
#include <string>

namespace attend::testing {

// By name, so that a test does not repeat the tables that it tests.
v1::DataType ToProto(DType dtype) {
  v1::DataType message = v1::DATA_TYPE_UNSPECIFIED;
  v1::DataType_Parse("DATA_TYPE_" + std::string(Name(dtype)), &message);
  return message;
}

DType FromProto(v1::DataType dtype) {
  for (const DType candidate :
       {DType::kBFloat16, DType::kFloat16, DType::kBool, DType::kInt8, DType::kInt64}) {
    if (ToProto(candidate) == dtype) return candidate;
  }
  return DType::kFloat32;
}

v1::Tensor ToProto(const Tensor& tensor) {
  v1::Tensor message;
  message.set_dtype(ToProto(tensor.dtype));
  message.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
  message.set_data(tensor.data.data(), tensor.data.size());
  return message;
}

TensorView ViewOf(const v1::Tensor& tensor) {
  return TensorView::Dense(FromProto(tensor.dtype()),
                           Dims(tensor.shape().begin(), tensor.shape().end()),
                           reinterpret_cast<const std::byte*>(tensor.data().data()));
}

std::vector<float> FloatsOf(const v1::Tensor& tensor) {
  const TensorView view = ViewOf(tensor);
  std::vector<float> values(tensor.data().size() / SizeOf(view.dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadFloat(view.dtype, view.at(static_cast<std::int64_t>(i)));
  }
  return values;
}

v1::Tensor FloatTensor(const Dims& shape, std::span<const float> values, DType dtype) {
  return ToProto(Tensor::FromFloats(dtype, shape, values));
}

v1::Tensor BoolTensor(const Dims& shape, std::span<const int> values) {
  Tensor tensor{DType::kBool, shape, {}};
  for (const int value : values) tensor.data.push_back(static_cast<std::byte>(value));
  return ToProto(tensor);
}

v1::Tensor RandomTensor(const Dims& shape, std::uint32_t seed, DType dtype) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(CheckedElementCount(shape, "random").value());
  for (float& value : values) value = normal(generator);
  return FloatTensor(shape, values, dtype);
}

v1::AttendRequest RandomRequest(const Sizes& sizes, std::uint32_t seed) {
  v1::AttendRequest request;
  const Dims query = {sizes.batch, sizes.query_heads, sizes.query_len, sizes.head_dim};
  const Dims key = {sizes.batch, sizes.kv_heads, sizes.kv_len, sizes.head_dim};
  const Dims value = {sizes.batch, sizes.kv_heads, sizes.kv_len, sizes.value_dim};
  *request.mutable_query() = RandomTensor(query, 3 * seed, sizes.dtype);
  *request.mutable_key() = RandomTensor(key, 3 * seed + 1, sizes.dtype);
  *request.mutable_value() = RandomTensor(value, 3 * seed + 2, sizes.dtype);
  return request;
}

v1::AttendRequest SlowRequest() {
  return RandomRequest({.batch = 1,
                        .query_heads = 4,
                        .kv_heads = 1,
                        .query_len = 1 << 17,
                        .kv_len = 1 << 17,
                        .head_dim = 8,
                        .value_dim = 8,
                        .dtype = DType::kFloat16});
}

namespace {

Layout FromProto(v1::Layout layout) {
  if (layout == v1::LAYOUT_BATCH_LENGTH_HEADS) return Layout::kBatchLengthHeads;
  return layout == v1::LAYOUT_PACKED ? Layout::kPacked : Layout::kBatchHeadsLength;
}

Alignment FromProto(v1::Alignment alignment) {
  if (alignment == v1::ALIGNMENT_LAST) return Alignment::kLast;
  return alignment == v1::ALIGNMENT_OFFSETS ? Alignment::kOffsets : Alignment::kFirst;
}

ScoreStage FromProto(v1::ScoreStage stage) {
  switch (stage) {
    case v1::SCORE_STAGE_SCALED:
      return ScoreStage::kScaled;
    case v1::SCORE_STAGE_CAPPED:
      return ScoreStage::kCapped;
    case v1::SCORE_STAGE_BIASED:
      return ScoreStage::kBiased;
    default:
      return ScoreStage::kNone;
  }
}

AttentionOptions ToOptions(const v1::AttentionOptions& options) {
  AttentionOptions to;
  if (options.has_scale()) to.scale = options.scale();
  to.softcap = options.softcap();
  to.causal = options.causal();
  to.alignment = FromProto(options.alignment());
  to.query_offsets.assign(options.query_offsets().begin(), options.query_offsets().end());
  if (options.has_window_left()) to.window_left = options.window_left();
  if (options.has_window_right()) to.window_right = options.window_right();
  if (options.has_alibi_slopes()) to.alibi_slopes = ViewOf(options.alibi_slopes());
  if (options.has_sinks()) to.sinks = ViewOf(options.sinks());
  if (options.has_block_mask()) {
    to.block_mask =
        BlockMask{options.block_mask().query_block_size(), options.block_mask().key_block_size(),
                  ViewOf(options.block_mask().blocks())};
  }
  return to;
}

}  // namespace

AttentionArgs ToArgs(const v1::AttendRequest& request) {
  AttentionArgs args;
  args.options = ToOptions(request.options());
  args.layout = FromProto(request.layout());
  args.query_lengths.assign(request.query_lengths().begin(), request.query_lengths().end());
  args.kv_lengths.assign(request.kv_lengths().begin(), request.kv_lengths().end());
  if (request.output().dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    args.output.dtype = FromProto(request.output().dtype());
  }
  args.output.lse = request.output().lse();
  args.output.weights = request.output().weights();
  args.output.scores = FromProto(request.output().scores());
  if (request.has_boolean_mask()) args.boolean_mask = ViewOf(request.boolean_mask());
  if (request.has_additive_mask()) args.additive_mask = ViewOf(request.additive_mask());
  args.query = ViewOf(request.query());
  args.key = ViewOf(request.key());
  args.value = ViewOf(request.value());
  return args;
}

}  // namespace attend::testing

#include "server/wire/attend_request.h"

#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "server/wire/tensor.h"

namespace attend {
namespace {

void Fill(v1::Tensor& tensor, v1::DataType dtype, const std::vector<std::int64_t>& shape) {
  tensor.set_dtype(dtype);
  std::size_t bytes = SizeOf(*ToDType(dtype, "dtype"));
  for (const std::int64_t size : shape) {
    tensor.add_shape(size);
    bytes *= static_cast<std::size_t>(size);
  }
  tensor.set_data(std::string(bytes, '\0'));
}

// [1, 2, 3, 4] x [1, 1, 5, 4] x [1, 1, 5, 6].
v1::AttendRequest PlainRequest() {
  v1::AttendRequest request;
  Fill(*request.mutable_query(), v1::DATA_TYPE_FLOAT32, {1, 2, 3, 4});
  Fill(*request.mutable_key(), v1::DATA_TYPE_FLOAT32, {1, 1, 5, 4});
  Fill(*request.mutable_value(), v1::DATA_TYPE_FLOAT32, {1, 1, 5, 6});
  return request;
}

void ExpectViewOf(const TensorView& view, const v1::Tensor& tensor) {
  EXPECT_EQ(v1::DataType(ToProto(view.dtype)), tensor.dtype());
  EXPECT_EQ(view.shape, Dims(tensor.shape().begin(), tensor.shape().end()));
  EXPECT_EQ(view.strides, DenseStrides(view.shape));
  EXPECT_EQ(static_cast<const void*>(view.data), static_cast<const void*>(tensor.data().data()));
}

TEST(AttendRequestTest, ViewsTensorsWhereTheyAre) {
  v1::AttendRequest request = PlainRequest();
  Fill(*request.mutable_boolean_mask(), v1::DATA_TYPE_BOOL, {3, 5});
  Fill(*request.mutable_additive_mask(), v1::DATA_TYPE_FLOAT16, {1, 5});
  Fill(*request.mutable_options()->mutable_alibi_slopes(), v1::DATA_TYPE_FLOAT32, {2});
  Fill(*request.mutable_options()->mutable_sinks(), v1::DATA_TYPE_FLOAT32, {2});
  Fill(*request.mutable_options()->mutable_block_mask()->mutable_blocks(), v1::DATA_TYPE_BOOL,
       {1, 1});
  const absl::StatusOr<AttentionArgs> args = ToAttentionArgs(request, {});
  ASSERT_TRUE(args.ok()) << args.status();
  ExpectViewOf(args->query, request.query());
  ExpectViewOf(args->key, request.key());
  ExpectViewOf(args->value, request.value());
  ExpectViewOf(args->boolean_mask.value(), request.boolean_mask());
  ExpectViewOf(args->additive_mask.value(), request.additive_mask());
  ExpectViewOf(args->options.alibi_slopes.value(), request.options().alibi_slopes());
  ExpectViewOf(args->options.sinks.value(), request.options().sinks());
  ExpectViewOf(args->options.block_mask.value().blocks, request.options().block_mask().blocks());
}

TEST(AttendRequestTest, LeavesUnsetWhatIsUnset) {  // pitfalls A22, A91
  const absl::StatusOr<AttentionArgs> args = ToAttentionArgs(PlainRequest(), {});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->layout, Layout::kBatchHeadsLength);
  EXPECT_FALSE(args->options.scale.has_value());
  EXPECT_EQ(args->options.softcap, 0);
  EXPECT_FALSE(args->options.causal);
  EXPECT_EQ(args->options.alignment, Alignment::kFirst);
  EXPECT_TRUE(args->options.query_offsets.empty());
  EXPECT_FALSE(args->options.window_left.has_value());
  EXPECT_FALSE(args->options.window_right.has_value());
  EXPECT_FALSE(args->options.alibi_slopes.has_value());
  EXPECT_FALSE(args->options.sinks.has_value());
  EXPECT_FALSE(args->options.block_mask.has_value());
  EXPECT_TRUE(args->query_lengths.empty());
  EXPECT_TRUE(args->kv_lengths.empty());
  EXPECT_FALSE(args->boolean_mask.has_value());
  EXPECT_FALSE(args->additive_mask.has_value());
  EXPECT_FALSE(args->output.dtype.has_value());
  EXPECT_FALSE(args->output.lse);
  EXPECT_FALSE(args->output.weights);
  EXPECT_EQ(args->output.scores, ScoreStage::kNone);
}

TEST(AttendRequestTest, KeepsZerosThatDifferFromUnset) {  // pitfalls A91
  v1::AttendRequest request = PlainRequest();
  request.mutable_options()->set_scale(0);
  request.mutable_options()->set_window_left(0);
  request.mutable_options()->set_window_right(0);
  const absl::StatusOr<AttentionArgs> args = ToAttentionArgs(request, {});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->options.scale, 0.0f);
  EXPECT_EQ(args->options.window_left, 0);
  EXPECT_EQ(args->options.window_right, 0);
}

TEST(AttendRequestTest, ConvertsEveryOption) {
  v1::AttendRequest request = PlainRequest();
  v1::AttentionOptions& options = *request.mutable_options();
  options.set_scale(-0.5f);
  options.set_softcap(30);
  options.set_causal(true);
  options.set_alignment(v1::ALIGNMENT_OFFSETS);
  options.add_query_offsets(-7);
  options.set_window_left(3);
  options.set_window_right(4);
  options.mutable_block_mask()->set_query_block_size(64);
  options.mutable_block_mask()->set_key_block_size(128);
  Fill(*options.mutable_block_mask()->mutable_blocks(), v1::DATA_TYPE_BOOL, {1, 1});
  request.add_query_lengths(2);
  request.add_kv_lengths(5);
  request.mutable_output()->set_dtype(v1::DATA_TYPE_BFLOAT16);
  request.mutable_output()->set_lse(true);
  request.mutable_output()->set_weights(true);
  request.mutable_output()->set_scores(v1::SCORE_STAGE_CAPPED);
  const absl::StatusOr<AttentionArgs> args = ToAttentionArgs(request, {});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->options.scale, -0.5f);
  EXPECT_EQ(args->options.softcap, 30);
  EXPECT_TRUE(args->options.causal);
  EXPECT_EQ(args->options.alignment, Alignment::kOffsets);
  EXPECT_EQ(args->options.query_offsets, std::vector<std::int64_t>({-7}));
  EXPECT_EQ(args->options.window_left, 3);
  EXPECT_EQ(args->options.window_right, 4);
  EXPECT_EQ(args->options.block_mask->query_block_size, 64);
  EXPECT_EQ(args->options.block_mask->key_block_size, 128);
  EXPECT_EQ(args->query_lengths, std::vector<std::int64_t>({2}));
  EXPECT_EQ(args->kv_lengths, std::vector<std::int64_t>({5}));
  EXPECT_EQ(args->output.dtype, DType::kBFloat16);
  EXPECT_TRUE(args->output.lse);
  EXPECT_TRUE(args->output.weights);
  EXPECT_EQ(args->output.scores, ScoreStage::kCapped);
}

TEST(AttendRequestTest, ConvertsEveryEnumValue) {  // pitfalls A22, A49
  v1::AttendRequest request = PlainRequest();
  const auto args = [&request] { return *ToAttentionArgs(request, {}); };
  request.set_layout(v1::LAYOUT_BATCH_HEADS_LENGTH);
  EXPECT_EQ(args().layout, Layout::kBatchHeadsLength);
  request.set_layout(v1::LAYOUT_BATCH_LENGTH_HEADS);
  EXPECT_EQ(args().layout, Layout::kBatchLengthHeads);
  request.set_layout(v1::LAYOUT_PACKED);
  EXPECT_EQ(args().layout, Layout::kPacked);
  request.mutable_options()->set_alignment(v1::ALIGNMENT_FIRST);
  EXPECT_EQ(args().options.alignment, Alignment::kFirst);
  request.mutable_options()->set_alignment(v1::ALIGNMENT_LAST);
  EXPECT_EQ(args().options.alignment, Alignment::kLast);
  request.mutable_output()->set_scores(v1::SCORE_STAGE_SCALED);
  EXPECT_EQ(args().output.scores, ScoreStage::kScaled);
  request.mutable_output()->set_scores(v1::SCORE_STAGE_BIASED);
  EXPECT_EQ(args().output.scores, ScoreStage::kBiased);
}

TEST(AttendRequestTest, ConvertsEveryDTypeBothWays) {
  for (const v1::DataType dtype :
       {v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_BOOL,
        v1::DATA_TYPE_INT8, v1::DATA_TYPE_INT64}) {
    const absl::StatusOr<DType> converted = ToDType(dtype, "query.dtype");
    ASSERT_TRUE(converted.ok()) << dtype;
    EXPECT_EQ(ToProto(*converted), dtype);
    EXPECT_EQ("DATA_TYPE_" + std::string(Name(*converted)), v1::DataType_Name(dtype));
  }
}

TEST(AttendRequestTest, TakesEmptyTensorsWithAndWithoutStorage) {
  v1::AttendRequest request = PlainRequest();
  request.mutable_query()->set_shape(2, 0);
  request.mutable_query()->set_data("");
  EXPECT_TRUE(ToAttentionArgs(request, {}).ok());
  request.mutable_query()->clear_data();
  EXPECT_TRUE(ToAttentionArgs(request, {}).ok());
}

TEST(AttendRequestTest, ReadsTheTimeout) {
  v1::AttendRequest request;
  EXPECT_EQ(*ToTimeout(request), absl::InfiniteDuration());
  request.mutable_timeout()->set_nanos(1'000'000);
  EXPECT_EQ(*ToTimeout(request), absl::Milliseconds(1));
  request.mutable_timeout()->set_nanos(0);
  EXPECT_EQ(GetFieldViolation(ToTimeout(request).status())->field, "timeout");
}

struct BadRequestCase {
  std::string name;
  std::function<void(v1::AttendRequest&)> spoil;
  std::string field;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

void PrintTo(const BadRequestCase& bad, std::ostream* stream) { *stream << bad.name; }

class BadRequestTest : public testing::TestWithParam<BadRequestCase> {};

TEST_P(BadRequestTest, IsRefusedByName) {
  v1::AttendRequest request = PlainRequest();
  GetParam().spoil(request);
  const absl::Status status = ToAttentionArgs(request, {.max_batch = 4}).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  ASSERT_TRUE(GetFieldViolation(status).has_value()) << status;
  EXPECT_EQ(GetFieldViolation(status)->field, GetParam().field);
}

constexpr std::int64_t kHuge = std::int64_t{1} << 62;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

INSTANTIATE_TEST_SUITE_P(
    Tensors, BadRequestTest,
    testing::ValuesIn(std::vector<BadRequestCase>{
        {"NoQuery", [](auto& r) { r.clear_query(); }, "query"},
        {"NoKey", [](auto& r) { r.clear_key(); }, "key"},
        {"NoValue", [](auto& r) { r.clear_value(); }, "value"},
        {"EmptyMessage", [](auto& r) { r.Clear(); }, "query"},
        {"DtypeUnset", [](auto& r) { r.mutable_query()->clear_dtype(); }, "query.dtype"},
        {"DtypeUnknown", [](auto& r) { r.mutable_key()->set_dtype(static_cast<v1::DataType>(99)); },
         "key.dtype"},
        {"DtypeNegative",
         [](auto& r) { r.mutable_key()->set_dtype(static_cast<v1::DataType>(-1)); }, "key.dtype"},
        {"NegativeSize", [](auto& r) { r.mutable_key()->set_shape(2, -1); }, "key.shape[2]"},
        {"SmallestSize",
         [](auto& r) { r.mutable_key()->set_shape(0, std::numeric_limits<std::int64_t>::min()); },
         "key.shape[0]"},
        {"ProductOverflow", [](auto& r) { r.mutable_value()->set_shape(0, kHuge); }, "value.shape"},
        {"ProductWrapsToItself",  // 2^32 * 2^32 * 4 = 0 modulo 2^64
         [](auto& r) {
           r.mutable_value()->set_shape(0, std::int64_t{1} << 32);
           r.mutable_value()->set_shape(1, std::int64_t{1} << 32);
           r.mutable_value()->set_data("");
         },
         "value.shape"},
        {"OverflowBehindAZero",
         [](auto& r) {
           r.mutable_value()->set_shape(0, kHuge);
           r.mutable_value()->set_shape(1, 0);
           r.mutable_value()->set_data("");
         },
         "value.shape"},
        {"TooManyDimensions",
         [](auto& r) {
           for (int i = 0; i < 1000; ++i) r.mutable_query()->add_shape(1);
         },
         "query.shape"},
        {"OneByteShort", [](auto& r) { r.mutable_query()->mutable_data()->pop_back(); },
         "query.data"},
        {"OneByteMore", [](auto& r) { r.mutable_query()->mutable_data()->push_back('x'); },
         "query.data"},
        {"NoBytes", [](auto& r) { r.mutable_query()->clear_data(); }, "query.data"},
        {"BytesOfAnotherDtype",
         [](auto& r) { r.mutable_query()->set_dtype(v1::DATA_TYPE_FLOAT16); }, "query.data"},
        {"ScalarWithoutBytes",
         [](auto& r) {
           r.mutable_query()->clear_shape();
           r.mutable_query()->set_data("");
         },
         "query.data"},
        {"BooleanMaskShort",
         [](auto& r) {
           Fill(*r.mutable_boolean_mask(), v1::DATA_TYPE_BOOL, {3, 5});
           r.mutable_boolean_mask()->mutable_data()->pop_back();
         },
         "boolean_mask.data"},
        {"AdditiveMaskWithoutDtype", [](auto& r) { r.mutable_additive_mask(); },
         "additive_mask.dtype"},
        {"SlopesShort",
         [](auto& r) {
           Fill(*r.mutable_options()->mutable_alibi_slopes(), v1::DATA_TYPE_FLOAT32, {2});
           r.mutable_options()->mutable_alibi_slopes()->set_data("1234");
         },
         "options.alibi_slopes.data"},
        {"SinksNegative",
         [](auto& r) {
           r.mutable_options()->mutable_sinks()->set_dtype(v1::DATA_TYPE_FLOAT32);
           r.mutable_options()->mutable_sinks()->add_shape(-2);
         },
         "options.sinks.shape[0]"},
        {"BlockMaskWithoutBlocks", [](auto& r) { r.mutable_options()->mutable_block_mask(); },
         "options.block_mask.blocks"},
    }),
    [](const auto& param_info) { return param_info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Values, BadRequestTest,
    testing::ValuesIn(std::vector<BadRequestCase>{
        {"Layout", [](auto& r) { r.set_layout(static_cast<v1::Layout>(4)); }, "layout"},
        {"Alignment",
         [](auto& r) { r.mutable_options()->set_alignment(static_cast<v1::Alignment>(-1)); },
         "options.alignment"},
        {"Scores", [](auto& r) { r.mutable_output()->set_scores(static_cast<v1::ScoreStage>(4)); },
         "output.scores"},
        {"OutputDtype",
         [](auto& r) { r.mutable_output()->set_dtype(static_cast<v1::DataType>(7)); },
         "output.dtype"},
        {"QueryLengths",
         [](auto& r) {
           for (int i = 0; i < 5; ++i) r.add_query_lengths(1);
         },
         "query_lengths"},
        {"KvLengths",
         [](auto& r) {
           for (int i = 0; i < 5; ++i) r.add_kv_lengths(1);
         },
         "kv_lengths"},
        {"QueryOffsets",
         [](auto& r) {
           for (int i = 0; i < 5; ++i) r.mutable_options()->add_query_offsets(1);
         },
         "options.query_offsets"},
    }),
    [](const auto& param_info) { return param_info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    NotOffered, BadRequestTest,
    testing::ValuesIn(std::vector<BadRequestCase>{
        {"QueryShared", [](auto& r) { r.mutable_query()->mutable_shared_memory(); },
         "query.shared_memory", kUnimplemented},
        {"KeyShared", [](auto& r) { r.mutable_key()->mutable_shared_memory(); },
         "key.shared_memory", kUnimplemented},
        {"MaskShared", [](auto& r) { r.mutable_boolean_mask()->mutable_shared_memory(); },
         "boolean_mask.shared_memory", kUnimplemented},
        {"SinksShared",
         [](auto& r) { r.mutable_options()->mutable_sinks()->mutable_shared_memory(); },
         "options.sinks.shared_memory", kUnimplemented},
        {"OutputTarget", [](auto& r) { r.mutable_output()->mutable_output_target(); },
         "output.output_target", kUnimplemented},
        {"LseTarget", [](auto& r) { r.mutable_output()->mutable_lse_target(); },
         "output.lse_target", kUnimplemented},
        {"WeightsTarget", [](auto& r) { r.mutable_output()->mutable_weights_target(); },
         "output.weights_target", kUnimplemented},
        {"ScoresTarget", [](auto& r) { r.mutable_output()->mutable_scores_target(); },
         "output.scores_target", kUnimplemented},
    }),
    [](const auto& param_info) { return param_info.param.name; });

// What a client of a later version would send: a field that this version does not have.
void AddUnknownField(google::protobuf::Message& message) {
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(1000, 1);
}

INSTANTIATE_TEST_SUITE_P(
    FromTheFuture, BadRequestTest,
    testing::ValuesIn(std::vector<BadRequestCase>{
        {"Request", [](auto& r) { AddUnknownField(r); }, "request", kUnimplemented},
        {"Options", [](auto& r) { AddUnknownField(*r.mutable_options()); }, "options",
         kUnimplemented},
        {"Output", [](auto& r) { AddUnknownField(*r.mutable_output()); }, "output", kUnimplemented},
        {"BlockMask", [](auto& r) { AddUnknownField(*r.mutable_options()->mutable_block_mask()); },
         "options.block_mask", kUnimplemented},
        {"Tensor", [](auto& r) { AddUnknownField(*r.mutable_value()); }, "value", kUnimplemented},
    }),
    [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace attend

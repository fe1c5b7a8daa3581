#include "client/cpp/request.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "client/cpp/client.h"
#include "core/base/status.h"

namespace attend::client_internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kNoLimit = std::int64_t{1} << 31;

std::vector<float> Floats(const v1::Tensor& tensor) {
  std::vector<float> values(tensor.data().size() / sizeof(float));
  std::memcpy(values.data(), tensor.data().data(), tensor.data().size());
  return values;
}

// Query, key and value of [1, 1, 2, 3], holding 0 to 5.
struct Inputs {
  std::vector<float> values = {0, 1, 2, 3, 4, 5};
  AttentionArgs args;

  Inputs() {
    args.query = FloatTensorView(values, {1, 1, 2, 3});
    args.key = args.query;
    args.value = args.query;
  }
  absl::Status Fill(v1::AttendRequest* request) const {
    return FillRequest(args, CallPriority::kNormal, kNoLimit, request);
  }
};

TEST(FillRequestTest, CopiesDenseTensorsAsTheyAre) {
  const Inputs inputs;
  v1::AttendRequest request;
  ASSERT_TRUE(inputs.Fill(&request).ok());
  EXPECT_EQ(request.query().dtype(), v1::DATA_TYPE_FLOAT32);
  EXPECT_THAT(request.query().shape(), ElementsAre(1, 1, 2, 3));
  EXPECT_THAT(Floats(request.key()), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(FillRequestTest, CopiesATransposedViewDense) {
  Inputs inputs;
  inputs.args.query.shape = {1, 1, 3, 2};
  inputs.args.query.strides = {6, 6, 1, 3};
  v1::AttendRequest request;
  ASSERT_TRUE(inputs.Fill(&request).ok());
  EXPECT_THAT(request.query().shape(), ElementsAre(1, 1, 3, 2));
  EXPECT_THAT(Floats(request.query()), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(FillRequestTest, CopiesASliceOfAWiderBuffer) {
  Inputs inputs;  // the middle column of [2, 3]
  inputs.args.query.shape = {1, 1, 2, 1};
  inputs.args.query.data += sizeof(float);
  v1::AttendRequest request;
  ASSERT_TRUE(inputs.Fill(&request).ok());
  EXPECT_THAT(Floats(request.query()), ElementsAre(1, 4));
}

TEST(FillRequestTest, RepeatsAlongAStrideOfZeroAndReversesAlongANegativeOne) {
  Inputs inputs;
  inputs.args.query.strides = {6, 6, 0, 1};
  inputs.args.key.strides = {6, 6, 3, -1};
  inputs.args.key.data += 2 * sizeof(float);
  v1::AttendRequest request;
  ASSERT_TRUE(inputs.Fill(&request).ok());
  EXPECT_THAT(Floats(request.query()), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(Floats(request.key()), ElementsAre(2, 1, 0, 5, 4, 3));
}

TEST(FillRequestTest, SendsEmptyTensorsWithoutData) {
  Inputs inputs;
  inputs.args.query = FloatTensorView({}, {1, 1, 0, 3});
  v1::AttendRequest request;
  ASSERT_TRUE(inputs.Fill(&request).ok());
  EXPECT_THAT(request.query().shape(), ElementsAre(1, 1, 0, 3));
  EXPECT_EQ(request.query().data(), "");
}

TEST(FillRequestTest, CarriesEveryOption) {
  Inputs inputs;
  const std::vector<float> slopes = {0.5f};
  const std::vector<float> sinks = {1.5f};
  const std::vector<float> mask = {0, -1};
  AttentionOptions& options = inputs.args.options;
  options = {.scale = 0.0f,
             .softcap = 30,
             .causal = true,
             .alignment = Alignment::kOffsets,
             .query_offsets = {-1},
             .window_left = 0,
             .window_right = 7};
  options.alibi_slopes = FloatTensorView(slopes, {1});
  options.sinks = FloatTensorView(sinks, {1});
  inputs.args.additive_mask = FloatTensorView(mask, {1, 2});
  inputs.args.layout = Layout::kBatchLengthHeads;
  inputs.args.query_lengths = {2};
  inputs.args.kv_lengths = {1};
  inputs.args.output = {
      .dtype = DType::kBFloat16, .lse = true, .weights = true, .scores = ScoreStage::kCapped};
  v1::AttendRequest request;
  ASSERT_TRUE(FillRequest(inputs.args, CallPriority::kHigh, kNoLimit, &request).ok());
  EXPECT_TRUE(request.options().has_scale());
  EXPECT_EQ(request.options().scale(), 0);
  EXPECT_EQ(request.options().softcap(), 30);
  EXPECT_TRUE(request.options().causal());
  EXPECT_EQ(request.options().alignment(), v1::ALIGNMENT_OFFSETS);
  EXPECT_THAT(request.options().query_offsets(), ElementsAre(-1));
  EXPECT_TRUE(request.options().has_window_left());
  EXPECT_EQ(request.options().window_left(), 0);
  EXPECT_EQ(request.options().window_right(), 7);
  EXPECT_THAT(Floats(request.options().alibi_slopes()), ElementsAre(0.5f));
  EXPECT_THAT(Floats(request.options().sinks()), ElementsAre(1.5f));
  EXPECT_THAT(Floats(request.additive_mask()), ElementsAre(0, -1));
  EXPECT_EQ(request.layout(), v1::LAYOUT_BATCH_LENGTH_HEADS);
  EXPECT_THAT(request.query_lengths(), ElementsAre(2));
  EXPECT_THAT(request.kv_lengths(), ElementsAre(1));
  EXPECT_EQ(request.output().dtype(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_TRUE(request.output().lse());
  EXPECT_TRUE(request.output().weights());
  EXPECT_EQ(request.output().scores(), v1::SCORE_STAGE_CAPPED);
  EXPECT_EQ(request.priority(), v1::PRIORITY_HIGH);
}

TEST(FillRequestTest, LeavesUnsetWhatIsNotGiven) {
  const Inputs inputs;
  v1::AttendRequest request;
  ASSERT_TRUE(inputs.Fill(&request).ok());
  EXPECT_FALSE(request.options().has_scale());
  EXPECT_FALSE(request.options().has_window_left());
  EXPECT_FALSE(request.options().has_window_right());
  EXPECT_FALSE(request.options().has_alibi_slopes());
  EXPECT_FALSE(request.has_boolean_mask());
  EXPECT_EQ(request.output().dtype(), v1::DATA_TYPE_UNSPECIFIED);
  EXPECT_EQ(request.priority(), v1::PRIORITY_UNSPECIFIED);
}

TEST(FillRequestTest, CarriesABlockMask) {
  Inputs inputs;
  const std::byte block{1};
  inputs.args.options.block_mask =
      BlockMask{64, 128, TensorView::Dense(DType::kBool, {1, 1}, &block)};
  v1::AttendRequest request;
  ASSERT_TRUE(inputs.Fill(&request).ok());
  EXPECT_EQ(request.options().block_mask().query_block_size(), 64);
  EXPECT_EQ(request.options().block_mask().key_block_size(), 128);
  EXPECT_EQ(request.options().block_mask().blocks().data(), std::string(1, '\1'));
}

TEST(FillRequestTest, RefusesWhatCannotBeRead) {
  v1::AttendRequest request;
  Inputs missing;
  missing.args.key = {};
  EXPECT_EQ(GetFieldViolation(missing.Fill(&request))->field, "key");
  Inputs negative;
  negative.args.value.shape[2] = -1;
  EXPECT_EQ(GetFieldViolation(negative.Fill(&request))->field, "value.shape[2]");
  Inputs strides;
  strides.args.query.strides.pop_back();
  EXPECT_EQ(GetFieldViolation(strides.Fill(&request))->field, "query.strides");
  Inputs overflow;
  overflow.args.query.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40, 1, 1};
  EXPECT_EQ(GetFieldViolation(overflow.Fill(&request))->field, "query.shape");
}

TEST(FillRequestTest, RefusesASpanOfAnotherSizeThanItsShape) {
  Inputs inputs;
  inputs.args.query = FloatTensorView(inputs.values, {1, 1, 2, 4});
  v1::AttendRequest request;
  const absl::Status status = inputs.Fill(&request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(status)->field, "query");
}

TEST(FillRequestTest, RefusesTensorsPastTheMessageLimitBeforeCopying) {
  const Inputs inputs;  // 3 tensors of 24 bytes
  v1::AttendRequest request;
  EXPECT_TRUE(FillRequest(inputs.args, CallPriority::kNormal, 72, &request).ok());
  v1::AttendRequest refused;
  const absl::Status status = FillRequest(inputs.args, CallPriority::kNormal, 71, &refused);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_message_bytes"));
  EXPECT_EQ(refused.query().data(), "");
}

}  // namespace
}  // namespace attend::client_internal

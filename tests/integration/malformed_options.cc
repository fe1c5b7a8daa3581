// Malformed options, masks and wishes for the output.
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "tests/integration/malformed_requests.h"
#include "tests/support/requests.h"

namespace attend::testing {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

void SetOffsets(v1::AttendRequest& request, v1::Alignment alignment,
                std::initializer_list<std::int64_t> offsets) {
  request.mutable_options()->set_alignment(alignment);
  request.mutable_options()->mutable_query_offsets()->Assign(offsets.begin(), offsets.end());
}

}  // namespace

std::vector<BadRequestCase> ScalarCases() {
  return {
      {"ScaleNaN", [](auto& r) { r.mutable_options()->set_scale(kNaN); }, "options.scale", "nan"},
      {"ScaleInfinite", [](auto& r) { r.mutable_options()->set_scale(-kInfinity); },
       "options.scale"},
      {"SoftcapNegative", [](auto& r) { r.mutable_options()->set_softcap(-1); }, "options.softcap",
       "-1"},
      {"SoftcapNaN", [](auto& r) { r.mutable_options()->set_softcap(kNaN); }, "options.softcap"},
      {"SoftcapInfinite", [](auto& r) { r.mutable_options()->set_softcap(kInfinity); },
       "options.softcap"},
      {"WindowLeftNegative", [](auto& r) { r.mutable_options()->set_window_left(-1); },
       "options.window_left", "-1"},
      {"WindowRightNegative", [](auto& r) { r.mutable_options()->set_window_right(kMin); },
       "options.window_right"},
      {"AlignmentUnknown",
       [](auto& r) { r.mutable_options()->set_alignment(static_cast<v1::Alignment>(77)); },
       "options.alignment", "77"},
      {"OffsetsWithoutAlignment", [](auto& r) { SetOffsets(r, v1::ALIGNMENT_UNSPECIFIED, {0}); },
       "options.query_offsets"},
      {"OffsetsWithLast",
       [](auto& r) {
         SetOffsets(r, v1::ALIGNMENT_LAST, {0, 0});
       },
       "options.query_offsets"},
      {"OffsetsMissing", [](auto& r) { SetOffsets(r, v1::ALIGNMENT_OFFSETS, {}); },
       "options.query_offsets"},
      {"OffsetsTooMany",
       [](auto& r) {
         SetOffsets(r, v1::ALIGNMENT_OFFSETS, {0, 0, 0});
       },
       "options.query_offsets"},
      {"OffsetHuge",
       [](auto& r) {
         SetOffsets(r, v1::ALIGNMENT_OFFSETS, {0, kMax});
       },
       "options.query_offsets[1]"},
      {"OffsetMostNegative", [](auto& r) { SetOffsets(r, v1::ALIGNMENT_OFFSETS, {kMin}); },
       "options.query_offsets[0]"},
      {"LayoutUnknown", [](auto& r) { r.set_layout(static_cast<v1::Layout>(9)); }, "layout", "9"},
      {"PriorityUnknown", [](auto& r) { r.set_priority(static_cast<v1::Priority>(9)); }, "priority",
       "9"},
      {"TimeoutZero", [](auto& r) { r.mutable_timeout(); }, "timeout"},
      {"TimeoutNegative", [](auto& r) { r.mutable_timeout()->set_seconds(-1); }, "timeout"},
      {"TimeoutNanosOutOfRange", [](auto& r) { r.mutable_timeout()->set_nanos(1'000'000'000); },
       "timeout"},
      {"TimeoutSignsDisagree",
       [](auto& r) {
         r.mutable_timeout()->set_seconds(1);
         r.mutable_timeout()->set_nanos(-1);
       },
       "timeout"},
      {"TimeoutHuge", [](auto& r) { r.mutable_timeout()->set_seconds(kMax); }, "timeout"}};
}

namespace {

v1::Tensor OneBadValue(const Dims& shape, float bad) {
  std::vector<float> values(*CheckedElementCount(shape, "mask"), 0);
  values.back() = bad;
  return FloatTensor(shape, values);
}

}  // namespace

std::vector<BadRequestCase> MaskCases() {
  return {{"BooleanMaskByteIsTwo",
           [](auto& r) {
             *r.mutable_boolean_mask() = BoolTensor({5}, std::vector<int>{1, 0, 2, 1, 1});
           },
           "boolean_mask.data[2]", "2"},
          {"BooleanMaskByteIs255",
           [](auto& r) {
             *r.mutable_boolean_mask() = BoolTensor({5}, std::vector<int>{255, 0, 1, 1, 1});
           },
           "boolean_mask.data[0]", "255"},
          {"BooleanMaskIsFloat",
           [](auto& r) {
             *r.mutable_boolean_mask() = RandomTensor({3, 5}, 1);
           },
           "boolean_mask.dtype"},
          {"BooleanMaskDoesNotBroadcast",
           [](auto& r) { *r.mutable_boolean_mask() = BoolTensor({4}, std::vector<int>(4, 1)); },
           "boolean_mask.shape[0]"},
          {"MaskRankFive",
           [](auto& r) {
             *r.mutable_additive_mask() = RandomTensor({1, 1, 1, 1, 5}, 1);
           },
           "additive_mask.shape"},
          {"MaskOverWrongHeads",
           [](auto& r) {
             *r.mutable_additive_mask() = RandomTensor({2, 3, 5}, 1);
           },
           "additive_mask.shape[0]"},
          {"MaskEmptyAxis",
           [](auto& r) {
             *r.mutable_additive_mask() = RandomTensor({0, 5}, 1);
           },
           "additive_mask.shape[0]"},
          {"MaskNegativeSize",
           [](auto& r) {
             *r.mutable_additive_mask() = RandomTensor({5}, 1);
             r.mutable_additive_mask()->set_shape(0, -5);
           },
           "additive_mask.shape[0]"},
          {"MaskByteCount",
           [](auto& r) {
             *r.mutable_additive_mask() = RandomTensor({5}, 1);
             r.mutable_additive_mask()->mutable_data()->resize(19);
           },
           "additive_mask.data"},
          {"AdditiveMaskIsBool",
           [](auto& r) { *r.mutable_additive_mask() = BoolTensor({5}, std::vector<int>(5, 1)); },
           "additive_mask.dtype", "BOOL"},
          {"AdditiveMaskNaN",
           [](auto& r) {
             *r.mutable_additive_mask() = OneBadValue({3, 5}, kNaN);
           },
           "additive_mask.data[14]", "nan"},
          {"AdditiveMaskInfinite",
           [](auto& r) {
             *r.mutable_additive_mask() = OneBadValue({2, 4, 3, 5}, kInfinity);
           },
           "additive_mask.data[119]", "inf"},
          {"AdditiveMaskHalfNaN",
           [](auto& r) {
             *r.mutable_additive_mask() =
                 FloatTensor({5}, std::vector<float>{0, kNaN, 0, 0, 0}, DType::kFloat16);
           },
           "additive_mask.data[1]"}};
}

namespace {

void SetBlocks(v1::AttendRequest& request, std::int64_t query_block, std::int64_t key_block,
               const Dims& shape) {
  v1::BlockMask& mask = *request.mutable_options()->mutable_block_mask();
  mask.set_query_block_size(query_block);
  mask.set_key_block_size(key_block);
  std::vector<int> on(*CheckedElementCount(shape, "blocks"), 1);
  *mask.mutable_blocks() = BoolTensor(shape, on);
}

}  // namespace

std::vector<BadRequestCase> OptionTensorCases() {
  return {
      {"SlopesNaN",
       [](auto& r) { *r.mutable_options()->mutable_alibi_slopes() = OneBadValue({4}, kNaN); },
       "options.alibi_slopes.data[3]"},
      {"SlopesInfinite",
       [](auto& r) {
         *r.mutable_options()->mutable_alibi_slopes() = OneBadValue({2, 4}, -kInfinity);
       },
       "options.alibi_slopes.data[7]"},
      {"SlopesOfWrongHeads",
       [](auto& r) { *r.mutable_options()->mutable_alibi_slopes() = RandomTensor({2}, 1); },
       "options.alibi_slopes.shape"},
      {"SlopesHalf",
       [](auto& r) {
         *r.mutable_options()->mutable_alibi_slopes() = RandomTensor({4}, 1, DType::kFloat16);
       },
       "options.alibi_slopes.dtype"},
      {"SlopesEmpty", [](auto& r) { r.mutable_options()->mutable_alibi_slopes(); },
       "options.alibi_slopes.dtype"},
      {"SinksNaN", [](auto& r) { *r.mutable_options()->mutable_sinks() = OneBadValue({4}, kNaN); },
       "options.sinks.data[3]"},
      {"SinksInfinite",
       [](auto& r) { *r.mutable_options()->mutable_sinks() = OneBadValue({4}, kInfinity); },
       "options.sinks.data[3]"},
      {"SinksOfKvHeads",
       [](auto& r) { *r.mutable_options()->mutable_sinks() = RandomTensor({2}, 1); },
       "options.sinks.shape"},
      {"SinksByteCount",
       [](auto& r) {
         *r.mutable_options()->mutable_sinks() = RandomTensor({4}, 1);
         r.mutable_options()->mutable_sinks()->clear_data();
       },
       "options.sinks.data"},
      {"BlockSizeZero",
       [](auto& r) {
         SetBlocks(r, 0, 64, {1, 1});
       },
       "options.block_mask.query_block_size", "64"},
      {"BlockSizeNotAMultiple",
       [](auto& r) {
         SetBlocks(r, 64, 100, {1, 1});
       },
       "options.block_mask.key_block_size", "100"},
      {"BlockSizeNegative",
       [](auto& r) {
         SetBlocks(r, -64, 64, {1, 1});
       },
       "options.block_mask.query_block_size"},
      {"BlocksMissing",
       [](auto& r) {
         SetBlocks(r, 64, 64, {1, 1});
         r.mutable_options()->mutable_block_mask()->clear_blocks();
       },
       "options.block_mask.blocks"},
      {"BlocksDoNotBroadcast",
       [](auto& r) {
         SetBlocks(r, 64, 64, {2, 3});
       },
       "options.block_mask.blocks.shape[0]"},
      {"BlocksAreFloats",
       [](auto& r) {
         SetBlocks(r, 64, 64, {1, 1});
         *r.mutable_options()->mutable_block_mask()->mutable_blocks() = RandomTensor({1, 1}, 1);
       },
       "options.block_mask.blocks.dtype"}};
}

std::vector<BadRequestCase> OutputCases() {
  return {{"OutputDtypeBool", [](auto& r) { r.mutable_output()->set_dtype(v1::DATA_TYPE_BOOL); },
           "output.dtype"},
          {"OutputDtypeUnknown",
           [](auto& r) { r.mutable_output()->set_dtype(static_cast<v1::DataType>(50)); },
           "output.dtype"},
          {"ScoreStageUnknown",
           [](auto& r) { r.mutable_output()->set_scores(static_cast<v1::ScoreStage>(50)); },
           "output.scores"},
          {"WeightsPastLimit",
           [](auto& r) {
             r = RandomRequest({.batch = 1, .query_len = 4096, .kv_len = 4096, .head_dim = 1});
             r.mutable_output()->set_weights(true);
           },
           "output.weights", "16777216"},
          {"ScoresPastLimit",
           [](auto& r) {
             r = RandomRequest({.batch = 1, .query_len = 4096, .kv_len = 4096, .head_dim = 1});
             r.mutable_output()->set_scores(v1::SCORE_STAGE_SCALED);
           },
           "output.scores", "16777216"}};
}

}  // namespace attend::testing

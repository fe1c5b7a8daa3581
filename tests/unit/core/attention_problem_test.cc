// Every request that AttentionProblem::Create refuses: the code, the field, the value and what was
// expected of it. pitfalls.md: B4 to B13, A13, A47, A50, A65, A91, A95.
#include "core/base/attention_problem.h"

#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "tests/unit/core/attention_test_support.h"
#include "tests/unit/core/refusal.h"

namespace attend::testing {
namespace {

constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMinInt64 = std::numeric_limits<std::int64_t>::min();

// A legal request of batch 2, heads 4 over 2, lengths 3 over 5 and dims 8 and 6, to be spoiled.
struct Draft {
  Request request = MakeRequest({2, 4, 2, 3, 5, 8, 6});
  AttentionArgs args = request.Args();
  AttentionLimits limits;
  std::deque<Tensor> tensors;

  TensorView Keep(Tensor tensor) { return tensors.emplace_back(std::move(tensor)).view(); }
  TensorView Floats(Dims shape, std::vector<float> values) {
    return Keep(Tensor::FromFloats(DType::kFloat32, std::move(shape), values));
  }
  TensorView Zeros(DType dtype, Dims shape) { return Keep(*Tensor::Zeros(dtype, shape)); }

  // The same tokens, packed: items of 1 and 2 queries, of 5 and 0 keys.
  void Pack() {
    args.layout = Layout::kPacked;
    args.query = Zeros(DType::kFloat32, {3, 4, 8});
    args.key = Zeros(DType::kFloat32, {5, 2, 8});
    args.value = Zeros(DType::kFloat32, {5, 2, 6});
    args.query_lengths = {1, 2};
    args.kv_lengths = {5, 0};
  }
};

class AttentionProblemRefuses : public ::testing::TestWithParam<Refusal<Draft>> {};

TEST_P(AttentionProblemRefuses, AndNamesFieldValueAndExpectation) {
  Draft draft;
  ASSERT_TRUE(AttentionProblem::Create(draft.args, draft.limits).ok());
  GetParam().spoil(draft);
  ExpectRefusal(AttentionProblem::Create(draft.args, draft.limits).status(), GetParam());
}

auto ShapeOfQuery(Dims shape) {
  return [shape](Draft& d) { Reshape(d.args.query, shape); };
}
auto ShapeOfKey(Dims shape) {
  return [shape](Draft& d) { Reshape(d.args.key, shape); };
}
auto ShapeOfValue(Dims shape) {
  return [shape](Draft& d) { Reshape(d.args.value, shape); };
}

std::vector<Refusal<Draft>> Shapes() {
  const std::int64_t big = std::int64_t{1} << 31;
  return {
      {"QueryOfRank3", ShapeOfQuery({4, 3, 8}), "query.shape", {"[4, 3, 8]", "4 sizes"}},
      {"KeyOfRank5", ShapeOfKey({1, 2, 2, 5, 8}), "key.shape", {"[1, 2, 2, 5, 8]", "4 sizes"}},
      {"ScalarValue", ShapeOfValue({}), "value.shape", {"[]", "4 sizes"}},
      {"PackedQueryOfRank4",
       [](Draft& d) {
         d.Pack();
         Reshape(d.args.query, {1, 3, 4, 8});
       },
       "query.shape",
       {"[1, 3, 4, 8]", "3 sizes"}},
      {"NegativeBatch", ShapeOfQuery({-1, 4, 3, 8}), "query.shape[0]", {"-1", "at least 0"}},
      {"NegativeLength", ShapeOfKey({2, 2, -5, 8}), "key.shape[2]", {"-5", "at least 0"}},
      {"MostNegativeDim",
       ShapeOfValue({2, 2, 5, kMinInt64}),
       "value.shape[3]",
       {"-9223372036854775808"}},
      {"OverflowingProduct", ShapeOfQuery({big, big, 4, 8}), "query.shape", {"2147483648", "fits"}},
      {"OverflowBehindAZero", ShapeOfKey({0, big, big, 8}), "key.shape", {"2147483648", "fits"}},
      {"HeadDimZero", ShapeOfQuery({2, 4, 3, 0}), "query.shape[3]", {"is 0", "from 1 to 1024"}},
      {"HeadDimPastLimit",  // pitfalls A50
       ShapeOfQuery({2, 4, 3, 1025}),
       "query.shape[3]",
       {"1025", "1 to 1024"}},
      {"HeadDimOfKeyOther", ShapeOfKey({2, 2, 5, 7}), "key.shape[3]", {"is 7", "expected 8"}},
      {"ValueDimZero", ShapeOfValue({2, 2, 5, 0}), "value.shape[3]", {"is 0", "from 1 to 1024"}},
      {"ValueDimPastLimit", ShapeOfValue({2, 2, 5, 1025}), "value.shape[3]", {"is 1025", "1024"}},
      {"QueryHeadsZero", ShapeOfQuery({2, 0, 3, 8}), "query.shape[1]", {"is 0", "from 1 to 1024"}},
      {"QueryHeadsPastLimit", ShapeOfQuery({2, 1025, 3, 8}), "query.shape[1]", {"is 1025", "1024"}},
      {"QueryHeadsNotMultiple",  // pitfalls A47
       ShapeOfQuery({2, 3, 3, 8}),
       "query.shape[1]",
       {"is 3", "multiple", "2"}},
      {"KvHeadsZero",  // pitfalls A47
       ShapeOfKey({2, 0, 5, 8}),
       "key.shape[1]",
       {"is 0", "from 1 to 1024"}},
      {"KvHeadsMoreThanQueryHeads",
       [](Draft& d) {
         Reshape(d.args.key, {2, 8, 5, 8});
         Reshape(d.args.value, {2, 8, 5, 6});
       },
       "query.shape[1]",
       {"is 4", "multiple", "8"}},
      {"HeadsOfValueOther", ShapeOfValue({2, 4, 5, 6}), "value.shape[1]", {"is 4", "expected 2"}},
      {"LengthOfValueOther", ShapeOfValue({2, 2, 4, 6}), "value.shape[2]", {"is 4", "expected 5"}},
      {"BatchOfKeyOther", ShapeOfKey({3, 2, 5, 8}), "key.shape[0]", {"is 3", "2, or 1"}},
      {"BatchOfKeyZero", ShapeOfKey({0, 2, 5, 8}), "key.shape[0]", {"is 0", "2, or 1"}},
      {"BatchOfValueOther", ShapeOfValue({4, 2, 5, 6}), "value.shape[0]", {"is 4", "2, or 1"}},
      {"BatchOfQueryOneOfKeyTwo", ShapeOfQuery({1, 4, 3, 8}), "key.shape[0]", {"is 2", "1"}},
      {"LengthFirstHeadsNotMultiple",
       [](Draft& d) {
         d.args.layout = Layout::kBatchLengthHeads;
         Reshape(d.args.query, {2, 4, 3, 8});
         Reshape(d.args.key, {2, 5, 2, 8});
         Reshape(d.args.value, {2, 5, 2, 6});
       },
       "query.shape[2]",
       {"is 3", "multiple", "2"}},
      {"PackedLengthOfValueOther",
       [](Draft& d) {
         d.Pack();
         Reshape(d.args.value, {4, 2, 6});
       },
       "value.shape[0]",
       {"is 4", "expected 5", "tokens"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Shape, AttentionProblemRefuses, ::testing::ValuesIn(Shapes()),
                         [](const auto& test) { return test.param.name; });

std::vector<Refusal<Draft>> DTypes() {
  std::vector<Refusal<Draft>> refusals;
  for (const DType dtype : {DType::kBool, DType::kInt8, DType::kInt64}) {
    const std::string name(Name(dtype));
    refusals.push_back({"QueryOf" + name,
                        [dtype](Draft& d) { d.args.query.dtype = dtype; },
                        "query.dtype",
                        {name, "FLOAT32, BFLOAT16 or FLOAT16"}});
    refusals.push_back({"ValueOf" + name,
                        [dtype](Draft& d) { d.args.value.dtype = dtype; },
                        "value.dtype",
                        {name, "FLOAT32, BFLOAT16 or FLOAT16"}});
    refusals.push_back({"OutputOf" + name,
                        [dtype](Draft& d) { d.args.output.dtype = dtype; },
                        "output.dtype",
                        {name, "FLOAT32, BFLOAT16 or FLOAT16"}});
  }
  refusals.push_back({"KeyOfAnotherFloat",
                      [](Draft& d) { d.args.key.dtype = DType::kBFloat16; },
                      "key.dtype",
                      {"BFLOAT16", "FLOAT32"}});
  refusals.push_back({"ValueOfAnotherFloat",
                      [](Draft& d) { d.args.value.dtype = DType::kFloat16; },
                      "value.dtype",
                      {"FLOAT16", "FLOAT32"}});
  return refusals;
}
INSTANTIATE_TEST_SUITE_P(DType, AttentionProblemRefuses, ::testing::ValuesIn(DTypes()),
                         [](const auto& test) { return test.param.name; });

auto QueryLengths(std::vector<std::int64_t> lengths, bool pack = false) {
  return [=](Draft& d) {
    if (pack) d.Pack();
    d.args.query_lengths = lengths;
  };
}
auto KvLengths(std::vector<std::int64_t> lengths, bool pack = false) {
  return [=](Draft& d) {
    if (pack) d.Pack();
    d.args.kv_lengths = lengths;
  };
}

std::vector<Refusal<Draft>> Lengths() {  // pitfalls A95
  return {
      {"QueryTooFew", QueryLengths({3}), "query_lengths.size", {"is 1", "expected 2"}},
      {"QueryTooMany", QueryLengths({1, 2, 3}), "query_lengths.size", {"is 3", "expected 2"}},
      {"QueryNegative", QueryLengths({3, -1}), "query_lengths[1]", {"is -1", "from 0 to 3"}},
      {"QueryPastPadded", QueryLengths({4, 3}), "query_lengths[0]", {"is 4", "from 0 to 3"}},
      {"KvTooFew", KvLengths({5}), "kv_lengths.size", {"is 1", "expected 2"}},
      {"KvTooMany", KvLengths({5, 5, 5}), "kv_lengths.size", {"is 3", "expected 2"}},
      {"KvNegative",
       KvLengths({kMinInt64, 5}),
       "kv_lengths[0]",
       {"-9223372036854775808", "0 to 5"}},
      {"KvPastPadded", KvLengths({5, 6}), "kv_lengths[1]", {"is 6", "from 0 to 5"}},
      {"PackedQueryMissing",
       [](Draft& d) {
         d.Pack();
         d.args.query_lengths.clear();
         d.args.kv_lengths.clear();
       },
       "query_lengths",
       {"sums to 0", "expected 3"}},
      {"PackedKvMissing", KvLengths({}, true), "kv_lengths.size", {"is 0", "expected 2"}},
      {"PackedCountsDiffer", KvLengths({5}, true), "kv_lengths.size", {"is 1", "expected 2"}},
      {"PackedQuerySum", QueryLengths({1, 1}, true), "query_lengths", {"sums to 2", "expected 3"}},
      {"PackedKvSum", KvLengths({5, 1}, true), "kv_lengths", {"sums to 6", "expected 5"}},
      {"PackedQueryNegative", QueryLengths({4, -1}, true), "query_lengths[1]", {"is -1", "from 0"}},
      {"PackedKvNegative", KvLengths({-2, 7}, true), "kv_lengths[0]", {"is -2", "from 0"}},
      {"PackedSumThatWraps",
       QueryLengths({kMaxInt64, kMaxInt64}, true),
       "query_lengths[0]",
       {"9223372036854775807", "from 0 to 4194304"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Length, AttentionProblemRefuses, ::testing::ValuesIn(Lengths()),
                         [](const auto& test) { return test.param.name; });

auto Scale(float scale) {
  return [=](Draft& d) { d.args.options.scale = scale; };
}
auto Softcap(float softcap) {
  return [=](Draft& d) { d.args.options.softcap = softcap; };
}
auto Slopes(Dims shape, std::vector<float> values) {
  return [=](Draft& d) { d.args.options.alibi_slopes = d.Floats(shape, values); };
}
auto Sinks(Dims shape, std::vector<float> values) {
  return [=](Draft& d) { d.args.options.sinks = d.Floats(shape, values); };
}

std::vector<Refusal<Draft>> Numbers() {
  return {
      // pitfalls A91, A65
      {"ScaleNaN", Scale(kNaN), "options.scale", {"nan", "finite"}},
      {"ScaleInfinite", Scale(kInf), "options.scale", {"inf", "finite"}},
      {"ScaleMinusInfinite", Scale(-kInf), "options.scale", {"-inf", "finite"}},
      {"SoftcapNaN", Softcap(kNaN), "options.softcap", {"nan", "finite", ">= 0"}},
      {"SoftcapInfinite", Softcap(kInf), "options.softcap", {"inf", "finite", ">= 0"}},
      {"SoftcapNegative", Softcap(-0.5f), "options.softcap", {"-0.5", ">= 0"}},
      {"SlopeNaN", Slopes({4}, {1, 1, kNaN, 1}), "options.alibi_slopes.data[2]", {"nan", "finite"}},
      {"SlopeOfAnItemInfinite",
       Slopes({2, 4}, {0, 0, 0, 0, 0, -kInf, 0, 0}),
       "options.alibi_slopes.data[5]",
       {"-inf", "finite"}},
      {"SlopesOfKvHeads", Slopes({2}, {1, 1}), "options.alibi_slopes.shape", {"[2]", "[4]"}},
      {"SlopesOfOneItem",
       Slopes({1, 4}, {1, 1, 1, 1}),
       "options.alibi_slopes.shape",
       {"[1, 4]", "[2, 4]"}},
      {"SlopesOfFloat16",
       [](Draft& d) { d.args.options.alibi_slopes = d.Zeros(DType::kFloat16, {4}); },
       "options.alibi_slopes.dtype",
       {"FLOAT16", "FLOAT32"}},
      {"SinkNaN", Sinks({4}, {kNaN, 0, 0, 0}), "options.sinks.data[0]", {"nan", "-inf"}},
      {"SinkInfinite", Sinks({4}, {0, 0, 0, kInf}), "options.sinks.data[3]", {"is inf", "-inf"}},
      {"SinksOfItems",
       Sinks({2, 4}, std::vector<float>(8)),
       "options.sinks.shape",
       {"[2, 4]", "[4]"}},
      {"SinksOfBFloat16",
       [](Draft& d) { d.args.options.sinks = d.Zeros(DType::kBFloat16, {4}); },
       "options.sinks.dtype",
       {"BFLOAT16", "FLOAT32"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Number, AttentionProblemRefuses, ::testing::ValuesIn(Numbers()),
                         [](const auto& test) { return test.param.name; });

auto WindowLeft(std::int64_t window) {
  return [=](Draft& d) { d.args.options.window_left = window; };
}
auto WindowRight(std::int64_t window) {
  return [=](Draft& d) { d.args.options.window_right = window; };
}
auto Offsets(Alignment alignment, std::vector<std::int64_t> offsets) {
  return [=](Draft& d) {
    d.args.options.alignment = alignment;
    d.args.options.query_offsets = offsets;
  };
}

std::vector<Refusal<Draft>> Positions() {
  const std::string field = "options.query_offsets";
  const std::int64_t bound = std::int64_t{1} << 40;
  return {
      {"WindowLeftNegative", WindowLeft(-1), "options.window_left", {"is -1", "from 0"}},
      {"WindowRightNegative", WindowRight(kMinInt64), "options.window_right", {"-922", "from 0"}},
      {"OffsetsWithFirst", Offsets(Alignment::kFirst, {0}), field, {"has 1", "none", "OFFSETS"}},
      {"OffsetsWithLast", Offsets(Alignment::kLast, {0, 0}), field, {"has 2", "none", "OFFSETS"}},
      {"OffsetsMissing", Offsets(Alignment::kOffsets, {}), field, {"has 0", "1 or 2"}},
      {"OffsetsTooMany", Offsets(Alignment::kOffsets, {0, 0, 0}), field, {"has 3", "1 or 2"}},
      {"OffsetTooLarge",
       Offsets(Alignment::kOffsets, {0, bound + 1}),
       field + "[1]",
       {"1099511627777", "to 1099511627776"}},
      {"OffsetTooSmall",
       Offsets(Alignment::kOffsets, {kMinInt64}),
       field + "[0]",
       {"-9223372036854775808", "from -1099511627776"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Position, AttentionProblemRefuses, ::testing::ValuesIn(Positions()),
                         [](const auto& test) { return test.param.name; });

auto Limit(std::int64_t AttentionLimits::*limit, std::int64_t bound) {
  return [=](Draft& d) { d.limits.*limit = bound; };
}

std::vector<Refusal<Draft>> Limits() {
  using L = AttentionLimits;
  return {
      {"HeadDim", Limit(&L::max_head_dim, 7), "query.shape[3]", {"is 8", "1 to 7"}},
      {"ValueDim", Limit(&L::max_value_dim, 5), "value.shape[3]", {"is 6", "1 to 5"}},
      {"Heads", Limit(&L::max_heads, 3), "query.shape[1]", {"is 4", "1 to 3"}},
      {"Batch", Limit(&L::max_batch, 1), "query.shape[0]", {"is 2", "0 to 1"}},
      {"QueryLength", Limit(&L::max_length, 2), "query.shape[2]", {"is 3", "0 to 2"}},
      {"KvLength", Limit(&L::max_length, 4), "key.shape[2]", {"is 5", "0 to 4"}},
      {"PackedBatch",
       [](Draft& d) {
         d.Pack();
         d.limits.max_batch = 1;
       },
       "query_lengths.size",
       {"is 2", "0 to 1"}},
      {"PackedLength",
       [](Draft& d) {
         d.Pack();
         d.limits.max_length = 4;
       },
       "kv_lengths[0]",
       {"is 5", "0 to 4"}},
      {"Weights",  // 2 * 4 * 3 * 5
       [](Draft& d) {
         d.args.output.weights = true;
         d.limits.max_score_elements = 119;
       },
       "output.weights",
       {"120", "119"}},
      {"Scores",
       [](Draft& d) {
         d.args.output.scores = ScoreStage::kCapped;
         d.limits.max_score_elements = 119;
       },
       "output.scores",
       {"120", "119"}},
      {"WeightsPast32Bits",  // pitfalls A55
       [](Draft& d) {
         d.args.output.weights = true;
         Reshape(d.args.query, {8, 28, 4096, 8});
         Reshape(d.args.key, {8, 28, 4096, 8});
         Reshape(d.args.value, {8, 28, 4096, 6});
       },
       "output.weights",
       {"3758096384", "16777216"}},
      {"OutputProduct",
       [](Draft& d) {
         d.limits.max_length = kMaxInt64;
         Reshape(d.args.query, {1, 4, std::int64_t{1} << 57, 1});
         Reshape(d.args.key, {1, 4, 5, 1});
         Reshape(d.args.value, {1, 4, 5, 1024});
       },
       "output.shape",
       {"1024]", "fits"}},
      {"ScoreProduct",
       [](Draft& d) {
         d.args.output.weights = true;
         d.limits.max_length = kMaxInt64;
         Reshape(d.args.query, {2, 4, std::int64_t{1} << 40, 8});
         Reshape(d.args.key, {1, 2, std::int64_t{1} << 40, 8});
         Reshape(d.args.value, {1, 2, std::int64_t{1} << 40, 6});
       },
       "output.weights.shape",
       {"1099511627776]", "fits"}},
      {"DotProducts",
       [](Draft& d) {
         d.limits.max_length = kMaxInt64;
         Reshape(d.args.query, {2, 4, std::int64_t{1} << 40, 8});
         Reshape(d.args.key, {1, 2, std::int64_t{1} << 40, 8});
         Reshape(d.args.value, {1, 2, std::int64_t{1} << 40, 6});
       },
       "query.shape",
       {"[2, 4, 1099511627776, 8]", "9223372036854775807"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Limit, AttentionProblemRefuses, ::testing::ValuesIn(Limits()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attend::testing

// Every call that Merge refuses: the field, the value and what was expected of it.
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/merge.h"
#include "tests/unit/core/merge_test_support.h"
#include "tests/unit/core/refusal.h"
#include "tests/unit/core/worked_examples.h"

namespace attend::testing {
namespace {

// Two legal parts of batch 2, heads 4, length 3 and value_dim 5, with sinks, to be spoiled.
struct Draft {
  std::deque<Tensor> tensors;
  std::vector<AttentionPart> parts;
  MergeOptions options;

  Draft() {
    for (int p = 0; p < 2; ++p) {
      parts.push_back({.output = Keep(Normal(DType::kFloat32, {2, 4, 3, 5}, 1 + p)),
                       .lse = Keep(Normal(DType::kFloat32, {2, 4, 3}, 3 + p))});
    }
    options.sinks = Keep(Normal(DType::kFloat32, {4}, 5));
  }

  TensorView Keep(Tensor tensor) { return tensors.emplace_back(std::move(tensor)).view(); }
};

class MergeRefuses : public ::testing::TestWithParam<Refusal<Draft>> {};

TEST_P(MergeRefuses, AndNamesFieldValueAndExpectation) {
  Draft draft;
  const absl::Status legal = Merge(draft.parts, draft.options).status();
  ASSERT_TRUE(legal.ok()) << legal;
  GetParam().spoil(draft);
  ExpectRefusal(Merge(draft.parts, draft.options).status(), GetParam());
}

auto ShapeOfOutput(int part, const Dims& shape) {
  return [=](Draft& d) { Reshape(d.parts[part].output, shape); };
}
auto ShapeOfLse(int part, const Dims& shape) {
  return [=](Draft& d) { Reshape(d.parts[part].lse, shape); };
}
auto InLayout(Layout layout) {
  return [=](Draft& d) { d.options.layout = layout; };
}
auto Sinks(const std::vector<float>& sinks) {
  return [=](Draft& d) {
    d.options.sinks = d.Keep(Given({static_cast<std::int64_t>(sinks.size())}, sinks));
  };
}

std::vector<Refusal<Draft>> OfParts() {
  return {
      {"NoParts", [](Draft& d) { d.parts.clear(); }, "parts", {"0 parts", "at least 1"}},
      {"OutputOfBools",
       [](Draft& d) { d.parts[0].output.dtype = DType::kBool; },
       "parts[0].output.dtype",
       {"is BOOL", "FLOAT32, BFLOAT16 or FLOAT16"}},
      {"SecondOutputOfInt64",
       [](Draft& d) { d.parts[1].output.dtype = DType::kInt64; },
       "parts[1].output.dtype",
       {"is INT64"}},
      {"LseOfHalves",
       [](Draft& d) { d.parts[1].lse.dtype = DType::kFloat16; },
       "parts[1].lse.dtype",
       {"is FLOAT16", "expected FLOAT32"}},
      {"NullOutput",
       [](Draft& d) { d.parts[1].output.data = nullptr; },
       "parts[1].output.data",
       {"is null", "[2, 4, 3, 5]"}},
      {"NullLse",
       [](Draft& d) { d.parts[0].lse.data = nullptr; },
       "parts[0].lse.data",
       {"is null"}},
      {"OutputStrides",
       [](Draft& d) { d.parts[0].output.strides.pop_back(); },
       "parts[0].output.strides",
       {"[60, 15, 5]", "[2, 4, 3, 5]"}},
      {"LseStrides",
       [](Draft& d) { d.parts[1].lse.strides.push_back(1); },
       "parts[1].lse.strides",
       {"[12, 3, 1, 1]", "[2, 4, 3]"}},
      {"AllEmptyViews",
       [](Draft& d) { d.parts = std::vector<AttentionPart>(2); },
       "parts[0].output.shape",
       {"is []", "[batch, query_heads, query_len, value_dim]"}},
  };
}

std::vector<Refusal<Draft>> OfShapes() {
  const std::int64_t big = std::int64_t{1} << 31;
  return {
      {"OutputOfRank3",
       ShapeOfOutput(0, {4, 3, 5}),
       "parts[0].output.shape",
       {"is [4, 3, 5]", "[batch, query_heads, query_len, value_dim]"}},
      {"SecondOutputOfRank5", ShapeOfOutput(1, {1, 2, 4, 3, 5}), "parts[1].output.shape", {}},
      {"LengthHeadsOfRank3",
       [](Draft& d) {
         d.options.layout = Layout::kBatchLengthHeads;
         Reshape(d.parts[0].output, {4, 3, 5});
       },
       "parts[0].output.shape",
       {"[batch, query_len, query_heads, value_dim]"}},
      {"PackedOfRank4",
       InLayout(Layout::kPacked),
       "parts[0].output.shape",
       {"is [2, 4, 3, 5]", "[tokens, query_heads, value_dim]"}},
      {"NegativeSize", ShapeOfOutput(0, {2, -4, 3, 5}), "parts[0].output.shape[1]", {"is -4"}},
      {"Overflow", ShapeOfOutput(0, {big, big, 3, 5}), "parts[0].output.shape", {"2147483648"}},
      {"OutputsDisagree",
       ShapeOfOutput(1, {2, 4, 3, 6}),
       "parts[1].output.shape",
       {"is [2, 4, 3, 6]", "expected [2, 4, 3, 5]", "parts[0].output"}},
      {"BatchDoesNotBroadcast", ShapeOfOutput(1, {1, 4, 3, 5}), "parts[1].output.shape", {}},
      {"LseOfRank2", ShapeOfLse(0, {4, 3}), "parts[0].lse.shape", {"is [4, 3]", "[2, 4, 3]"}},
      {"LseOfAnOutput", ShapeOfLse(1, {2, 4, 3, 1}), "parts[1].lse.shape", {"[2, 4, 3, 1]"}},
      {"LseDisagrees", ShapeOfLse(1, {2, 4, 2}), "parts[1].lse.shape", {"[2, 4, 2]", "[2, 4, 3]"}},
      {"LseInTheOrderOfAnotherLayout",
       InLayout(Layout::kBatchLengthHeads),
       "parts[0].lse.shape",
       {"is [2, 4, 3]", "expected [2, 3, 4]"}},
      {"PackedLseDisagrees",
       [](Draft& d) {
         d.options.layout = Layout::kPacked;
         Reshape(d.parts[0].output, {6, 4, 5});
         Reshape(d.parts[0].lse, {4, 6});
       },
       "parts[0].lse.shape",
       {"is [4, 6]", "expected [6, 4]"}},
  };
}

std::vector<Refusal<Draft>> OfOptions() {
  return {
      {"OptionsDType",
       [](Draft& d) { d.options.dtype = DType::kInt8; },
       "options.dtype",
       {"is INT8", "FLOAT32, BFLOAT16 or FLOAT16"}},
      {"SinksOfHalves",
       [](Draft& d) { d.options.sinks->dtype = DType::kBFloat16; },
       "options.sinks.dtype",
       {"is BFLOAT16", "FLOAT32"}},
      {"SinksOfRank2",
       [](Draft& d) {
         Reshape(*d.options.sinks, {1, 4});
       },
       "options.sinks.shape",
       {"is [1, 4]", "expected [4]"}},
      {"SinksTooFew", Sinks({1, 2, 3}), "options.sinks.shape", {"is [3]", "expected [4]"}},
      {"SinksNull",
       [](Draft& d) { d.options.sinks->data = nullptr; },
       "options.sinks.data",
       {"is null"}},
      {"SinkNaN", Sinks({0, 1, kNaN, 3}), "options.sinks.data[2]", {"nan", "a number or -inf"}},
      {"SinkInfinite", Sinks({0, kInf, 2, 3}), "options.sinks.data[1]", {"is inf", "or -inf"}},
  };
}

std::string NameOf(const ::testing::TestParamInfo<Refusal<Draft>>& test) { return test.param.name; }
INSTANTIATE_TEST_SUITE_P(Parts, MergeRefuses, ::testing::ValuesIn(OfParts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Shapes, MergeRefuses, ::testing::ValuesIn(OfShapes()), NameOf);
INSTANTIATE_TEST_SUITE_P(Options, MergeRefuses, ::testing::ValuesIn(OfOptions()), NameOf);

}  // namespace
}  // namespace attend::testing

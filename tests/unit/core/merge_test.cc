// Merge: parts over some of the keys against the reference over all of them, and every edge.
#include "core/base/merge.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/core/merge_test_support.h"
#include "tests/unit/core/worked_examples.h"

namespace attend::testing {
namespace {

constexpr float kMaxFloat = std::numeric_limits<float>::max();

// Items of 7 and 4 queries and of 23 and 15 keys, six query heads over two, in any layout.
Request Whole(Layout layout, DType dtype = DType::kFloat32) {
  const auto shape = [layout](std::int64_t length, std::int64_t tokens, std::int64_t heads,
                              std::int64_t dim) -> Dims {
    if (layout == Layout::kPacked) return {tokens, heads, dim};
    if (layout == Layout::kBatchLengthHeads) return {2, length, heads, dim};
    return {2, heads, length, dim};
  };
  Request request;
  request.query = Normal(dtype, shape(7, 11, 6, 5), 1);
  request.key = Normal(dtype, shape(23, 38, 2, 5), 2);
  request.value = Normal(dtype, shape(23, 38, 2, 3), 3);
  request.args.layout = layout;
  request.args.query_lengths = {7, 4};
  request.args.kv_lengths = {23, 15};
  return request;
}

ReferenceResult Reference(const Request& request) {
  const auto problem = AttentionProblem::Create(request.Args());
  EXPECT_TRUE(problem.ok()) << problem.status();
  return ReferenceAttention(problem.value());
}

// The reference's answer to a request, rounded to FLOAT32 and the dtype.
MergeResult Answered(const Request& request, DType dtype = DType::kFloat32) {
  const AttentionProblem problem = AttentionProblem::Create(request.Args()).value();
  const ReferenceResult result = ReferenceAttention(problem);
  return {Tensor::FromFloats(dtype, problem.output_shape(),
                             std::vector<float>(result.output.begin(), result.output.end())),
          Given(problem.lse_shape(), {result.lse.begin(), result.lse.end()})};
}

std::vector<MergeResult> AnswersBetween(const Request& whole, const std::vector<std::int64_t>& cuts,
                                        DType dtype = DType::kFloat32) {
  std::vector<MergeResult> answers;
  for (const KeyRange& keys : RangesBetween(cuts)) {
    answers.push_back(Answered(PartOf(whole, keys), dtype));
  }
  return answers;
}

MergeResult Merged(const std::vector<MergeResult>& answers, const MergeOptions& options = {}) {
  const auto merged = Merge(PartsOf(answers), options);
  EXPECT_TRUE(merged.ok()) << merged.status();
  return merged.value();
}

// What to merge the parts of a request with.
MergeOptions OptionsOf(const Request& whole, DType dtype = DType::kFloat32) {
  MergeOptions options{.layout = whole.args.layout, .sinks = {}, .dtype = dtype};
  if (whole.sinks.has_value()) options.sinks = whole.sinks->view();
  return options;
}

// Two to five parts: uneven, empty, past the shorter item, of one key.
const std::vector<std::vector<std::int64_t>>& Splits() {
  static const auto& splits = *new std::vector<std::vector<std::int64_t>>{
      {0, 9, 23}, {0, 22, 23}, {0, 1, 16, 23}, {0, 9, 9, 14, 23}, {0, 0, 3, 15, 22, 23}};
  return splits;
}

// One row of one head.
MergeResult Row(std::vector<float> output, float lse) {
  const auto columns = static_cast<std::int64_t>(output.size());
  return {Matrix(1, columns, std::move(output)), Given({1, 1, 1}, {lse})};
}

void ExpectRow(const MergeResult& result, const std::vector<float>& output, float lse) {
  const std::vector<float> actual = result.output.ToFloats();
  ASSERT_EQ(actual.size(), output.size());
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (std::isnan(output[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << "output[" << i << "] " << actual[i];
    } else {
      EXPECT_EQ(actual[i], output[i]) << "output[" << i << "]";
    }
  }
  const float actual_lse = result.lse.ToFloats()[0];
  EXPECT_TRUE(actual_lse == lse || (std::isnan(lse) && std::isnan(actual_lse))) << actual_lse;
}

// --- Split keys ---------------------------------------------------------------------------------

struct Variant {
  std::string name;
  std::function<void(Request&)> set;
};

std::vector<Variant> Variants() {
  return {
      {"plain", [](Request&) {}},
      {"causal", [](Request& r) { r.args.options.causal = true; }},
      {"causal at the last key",
       [](Request& r) {
         r.args.options.causal = true;
         r.args.options.alignment = Alignment::kLast;
       }},
      {"causal at offsets",
       [](Request& r) {
         r.args.options.causal = true;
         r.args.options.alignment = Alignment::kOffsets;
         r.args.options.query_offsets = {12, -2};  // item 1's first rows see no key at all
       }},
      {"window",
       [](Request& r) {
         r.args.options.alignment = Alignment::kLast;
         r.args.options.window_left = 6;
         r.args.options.window_right = 2;
       }},
      {"slopes",
       [](Request& r) {
         r.alibi_slopes = Normal(DType::kFloat32, {2, 6}, 4, 0.3f);
         r.args.options.alignment = Alignment::kLast;
       }},
      {"scale and softcap",
       [](Request& r) {
         r.args.options.scale = 2;
         r.args.options.softcap = 3;
       }},
  };
}

void ExpectSplitsAreTheWhole(const Request& whole) {
  const ReferenceResult reference = Reference(whole);
  for (const std::vector<std::int64_t>& cuts : Splits()) {
    SCOPED_TRACE(ShapeString(cuts));
    const std::vector<MergeResult> answers = AnswersBetween(whole, cuts);
    ExpectMerged(Merged(answers, OptionsOf(whole)), reference, RoundingErrors(answers));
  }
}

TEST(MergeSplitKeys, IsTheWholeInEveryLayoutWithEveryOption) {
  for (const Layout layout : kLayouts) {
    for (const Variant& variant : Variants()) {
      SCOPED_TRACE(::testing::Message() << variant.name << ", layout " << static_cast<int>(layout));
      Request whole = Whole(layout);
      variant.set(whole);
      ExpectSplitsAreTheWhole(whole);
      whole.sinks = Given({6}, {-kInf, -3, 0, 0.5f, 2, 40});
      ExpectSplitsAreTheWhole(whole);
    }
  }
}

TEST(MergeSplitKeys, IsTheWholeWithMasksOneOfWhichSwitchesAPartOff) {
  for (const Layout layout : {Layout::kBatchHeadsLength, Layout::kBatchLengthHeads}) {
    Request whole = Whole(layout);
    whole.boolean_mask = Bools({6, 7, 23}, 5, 0.6);
    for (std::int64_t row = 0; row < 6 * 7; ++row) {
      std::fill_n(whole.boolean_mask->data.begin() + row * 23 + 9, 5, std::byte{0});
    }
    std::vector<float> bias = Normal(DType::kFloat32, {2, 1, 1, 23}, 6).ToFloats();
    bias[2] = bias[30] = -kInf;
    whole.additive_mask = Given({2, 1, 1, 23}, bias);
    ExpectSplitsAreTheWhole(whole);
    whole.sinks = Normal(DType::kFloat32, {6}, 7);
    ExpectSplitsAreTheWhole(whole);
    const std::vector<float> lse = Answered(PartOf(whole, {9, 14})).lse.ToFloats();
    EXPECT_EQ(lse, std::vector<float>(lse.size(), -kInf));
  }
}

TEST(MergeSplitKeys, IsTheWholeInEveryDTypeOfPartsAndOfTheResult) {
  for (const Layout layout : kLayouts) {
    for (const DType in : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const DType out : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        SCOPED_TRACE(::testing::Message() << Name(in) << " to " << Name(out));
        Request whole = Whole(layout, in);
        whole.sinks = Normal(DType::kFloat32, {6}, 7);
        const std::vector<MergeResult> answers = AnswersBetween(whole, {0, 9, 9, 14, 23}, in);
        const MergeResult merged = Merged(answers, OptionsOf(whole, out));
        EXPECT_EQ(merged.output.dtype, out);
        EXPECT_EQ(merged.lse.dtype, DType::kFloat32);
        ExpectMerged(merged, Reference(whole), RoundingErrors(answers), StepOf(in));
      }
    }
  }
}

TEST(MergeSplitKeys, PartsMayDifferInDType) {
  const Request whole = Whole(Layout::kBatchHeadsLength);
  const std::vector<MergeResult> answers = {Answered(PartOf(whole, {0, 8})),
                                            Answered(PartOf(whole, {8, 10}), DType::kBFloat16),
                                            Answered(PartOf(whole, {10, 23}), DType::kFloat16)};
  ExpectMerged(Merged(answers), Reference(whole), RoundingErrors(answers), StepOf(DType::kFloat16));
}

// --- Known numbers ------------------------------------------------------------------------------

// worked-examples.md: three keys of dimension 4, scaled scores 1.2, 0.9 and 1.55.
TEST(MergeExample, ThreeKeysInTwoParts) {
  const double first = std::exp(1.2) / (std::exp(1.2) + std::exp(0.9));
  const std::vector<float> v1 = {.5f, .8f, .3f, .6f};
  const std::vector<float> v2 = {.7f, .4f, .9f, .2f};
  std::vector<float> both(4);
  for (int d = 0; d < 4; ++d) both[d] = static_cast<float>(first * v1[d] + (1 - first) * v2[d]);
  const auto lse = static_cast<float>(std::log(std::exp(1.2) + std::exp(0.9)));
  const MergeResult merged = Merged({Row(both, lse), Row({.6f, .5f, .7f, .8f}, 1.55f)});
  const Numbers expected = {0.591798, 0.571496, 0.620302, 0.596040};
  for (int d = 0; d < 4; ++d) EXPECT_NEAR(Doubles(merged.output)[d], expected[d], 1e-6);
}

// worked-examples.md: y3 of the simplest self-attention. A key by itself is a part whose LSE is its
// score and whose output is its value.
TEST(MergeExample, KeysOneByOne) {
  const MergeResult merged =
      Merged({Row({1, .5f, .2f, .8f}, 1.73f), Row({.3f, 1.2f, .6f, .4f}, 1.33f),
              Row({.9f, .1f, 1.1f, .7f}, 2.52f)});
  const Numbers expected = {0.821989, 0.393607, 0.781143, 0.673902};
  for (int d = 0; d < 4; ++d) EXPECT_NEAR(Doubles(merged.output)[d], expected[d], 1e-6);
}

TEST(MergeExample, LseIsInNaturalLogarithms) {  // pitfalls A89
  ExpectRow(Merged({Row({1}, 0), Row({2}, 0)}), {1.5f}, 0.693147181f);
}

TEST(MergeExample, ASinkIsCountedOnceHoweverManyTheParts) {
  // Four keys with score 0 and a sink of ln 4: half of everything. Once a part: less.
  const std::vector<MergeResult> parts = {Row({1}, 0), Row({2}, 0), Row({3}, 0), Row({4}, 0)};
  const Tensor sinks = Given({1}, {1.386294361f});
  const MergeResult merged = Merged(parts, {.sinks = sinks.view()});
  EXPECT_NEAR(Doubles(merged.output)[0], 1.25, 1e-7);
  EXPECT_NEAR(Doubles(merged.lse)[0], 1.386294361, 1e-7);
}

// --- Properties ---------------------------------------------------------------------------------

TEST(MergeProperty, OnePartWithoutSinksComesBackAsItIs) {
  for (const Layout layout : kLayouts) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const Request whole = Whole(layout, dtype);
      const MergeResult part = Answered(whole, dtype);
      const MergeResult merged = Merged({part}, OptionsOf(whole, dtype));
      EXPECT_EQ(merged.output.shape, part.output.shape);
      EXPECT_EQ(merged.output.data, part.output.data);
      EXPECT_EQ(merged.lse.shape, part.lse.shape);
      EXPECT_EQ(merged.lse.data, part.lse.data);
    }
  }
  const MergeResult zeros = Row({-0.0f, 0.0f}, 3);
  EXPECT_EQ(Merged({zeros}).output.data, zeros.output.data);
}

TEST(MergeProperty, ASinkOfMinusInfinityIsNoSink) {
  const Request whole = Whole(Layout::kBatchLengthHeads);
  const std::vector<MergeResult> answers = AnswersBetween(whole, {0, 9, 23});
  const Tensor sinks = Given({6}, std::vector<float>(6, -kInf));
  MergeOptions options = OptionsOf(whole);
  const MergeResult without = Merged(answers, options);
  options.sinks = sinks.view();
  EXPECT_EQ(Merged(answers, options).output.data, without.output.data);
}

TEST(MergeProperty, SinksAreNoPartOfLse) {
  Request whole = Whole(Layout::kPacked);
  const std::vector<MergeResult> answers = AnswersBetween(whole, {0, 9, 23});
  const MergeResult without = Merged(answers, OptionsOf(whole));
  whole.sinks = Normal(DType::kFloat32, {6}, 7);
  const MergeResult with = Merged(answers, OptionsOf(whole));
  EXPECT_EQ(with.lse.data, without.lse.data);
  EXPECT_NE(with.output.data, without.output.data);
}

TEST(MergeProperty, MergingInStepsIsMergingAtOnce) {
  for (const Layout layout : kLayouts) {
    Request whole = Whole(layout);
    const MergeOptions plain = OptionsOf(whole);
    whole.sinks = Normal(DType::kFloat32, {6}, 7);
    const std::vector<MergeResult> a = AnswersBetween(whole, {0, 2, 7});
    const std::vector<MergeResult> b = AnswersBetween(whole, {7, 7, 16, 23});
    const std::vector<MergeResult> steps = {Merged(a, plain), Merged(b, plain)};
    PartErrors errors = RoundingErrors(a);
    for (const PartErrors& more : {RoundingErrors(b), RoundingErrors(steps)}) {
      errors.output += more.output;
      errors.lse += more.lse;
    }
    ExpectMerged(Merged(steps, OptionsOf(whole)), Reference(whole), errors);
  }
}

TEST(MergeProperty, AnyOrderIsWithinTheBound) {
  Request whole = Whole(Layout::kBatchHeadsLength);
  whole.sinks = Normal(DType::kFloat32, {6}, 7);
  const ReferenceResult reference = Reference(whole);
  std::vector<MergeResult> answers = AnswersBetween(whole, {0, 2, 7, 16, 22, 23});
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(answers.begin(), answers.end(), random);
    ExpectMerged(Merged(answers, OptionsOf(whole)), reference, RoundingErrors(answers));
  }
}

// Parts that are exact as given: what is left of the bound is Merge's own 2^-40 and one rounding.
TEST(MergeProperty, ManyPartsCostNoMoreThanOneRounding) {
  constexpr int kParts = 3000;
  const Tensor sinks = Given({1}, {28});
  const std::vector<float> lses = Normal(DType::kFloat32, {kParts}, 1, 10).ToFloats();
  std::vector<MergeResult> parts(kParts);
  for (int p = 0; p < kParts; ++p) {
    parts[p] = Row(Normal(DType::kFloat32, {8}, 10 + p).ToFloats(), lses[p]);
  }
  const Numbers merged = Doubles(Merged(parts, {.sinks = sinks.view()}).output);
  long double denominator = std::exp(28.0L);
  for (const float lse : lses) denominator += std::exp(static_cast<long double>(lse));
  for (int d = 0; d < 8; ++d) {
    long double output = 0;
    long double magnitude = 0;
    for (int p = 0; p < kParts; ++p) {
      const long double weight = std::exp(static_cast<long double>(lses[p])) / denominator;
      output += weight * Doubles(parts[p].output)[d];
      magnitude += weight * std::abs(Doubles(parts[p].output)[d]);
    }
    const auto want = static_cast<double>(output);
    const auto error = static_cast<double>(0x1p-40L * magnitude);
    EXPECT_NEAR(merged[d], want, error + 0x1p-24 * (std::abs(want) + error));
  }
}

// --- LSEs far apart -----------------------------------------------------------------------------

TEST(MergeExtremes, OfLsesFarApartTheLargerIsAll) {
  for (const float large : {1e30f, kMaxFloat, 1000.0f}) {
    const MergeResult winner = Row({1, -2}, large);
    const MergeResult loser = Row({kMaxFloat, 5}, -large);
    ExpectRow(Merged({winner, loser}), {1, -2}, large);
    ExpectRow(Merged({loser, winner}), {1, -2}, large);
  }
}

TEST(MergeExtremes, OfEqualLsesAllCountAlikeHoweverLarge) {
  for (const float lse : {1e30f, kMaxFloat, -1e30f, -kMaxFloat}) {
    ExpectRow(Merged({Row({1, 5}, lse), Row({2, -5}, lse)}), {1.5f, 0}, lse);
  }
}

TEST(MergeExtremes, AWeightThatUnderflowsTakesNothing) {
  ExpectRow(Merged({Row({3}, 0), Row({4}, -800)}), {3}, 0);
}

TEST(MergeExtremes, OfOutputsNothingOverflows) {
  ExpectRow(Merged(std::vector<MergeResult>(7, Row({kMaxFloat, -kMaxFloat}, -1e30f))),
            {kMaxFloat, -kMaxFloat}, -1e30f);
  const std::vector<MergeResult> two = {Row({1e38f}, 1), Row({kMaxFloat}, 1)};
  EXPECT_EQ(Merged(two, {.dtype = DType::kFloat16}).output.ToFloats()[0], kInf);
}

TEST(MergeExtremes, SinksFarAboveAndFarBelow) {
  const Tensor high = Given({1}, {kMaxFloat});
  const Tensor low = Given({1}, {-kMaxFloat});
  for (const float lse : {-kMaxFloat, -1e30f, 0.0f, 1e30f}) {
    const std::vector<MergeResult> parts = {Row({1, -3}, lse), Row({3, -3}, lse)};
    const float whole_lse = lse == 0 ? 0.693147181f : lse;
    ExpectRow(Merged(parts, {.sinks = high.view()}), {0, 0}, whole_lse);
    const bool equal = lse == -kMaxFloat;  // the sink is one of three
    ExpectRow(Merged(parts, {.sinks = low.view()}),
              equal ? std::vector<float>{4.0f / 3, -2} : std::vector<float>{2, -3}, whole_lse);
  }
}

// --- No key, and no number ----------------------------------------------------------------------

TEST(MergeEmpty, APartThatSawNoKeyAddsNothingWhateverItHolds) {
  const MergeResult seen = Row({1, 2}, -5);
  for (const float bits : {kNaN, kInf, -kInf, 7.0f}) {
    ExpectRow(Merged({Row({bits, bits}, -kInf), seen}), {1, 2}, -5);
    ExpectRow(Merged({seen, Row({bits, bits}, -kInf), Row({bits, 0}, -kInf)}), {1, 2}, -5);
  }
}

TEST(MergeEmpty, WhereNoPartSawAKeyThereAreZeros) {
  for (const float bits : {0.0f, kNaN, -kInf}) {
    for (const float sink : {-kInf, -kMaxFloat, 0.0f, kMaxFloat}) {
      const Tensor sinks = Given({1}, {sink});
      const std::vector<MergeResult> parts(3, Row({bits, -0.0f}, -kInf));
      const MergeResult merged = Merged(parts, {.sinks = sinks.view()});
      ExpectRow(merged, {0, 0}, -kInf);
      EXPECT_EQ(merged.output.data, Matrix(1, 2, {0, 0}).data);  // not -0
    }
    ExpectRow(Merged({Row({bits}, -kInf)}), {0}, -kInf);
  }
}

TEST(MergeEmpty, TensorsWithoutRowsGiveTensorsWithoutRows) {
  const std::int64_t big = std::int64_t{1} << 40;
  for (const auto& [shape, lse_shape] :
       std::vector<std::pair<Dims, Dims>>{{{0, 2, 3, 4}, {0, 2, 3}},
                                          {{2, 2, 0, 4}, {2, 2, 0}},
                                          {{big, 2, 0, 4}, {big, 2, 0}},
                                          {{0, 2, 1, big}, {0, 2, 1}}}) {
    const MergeResult part{*Tensor::Zeros(DType::kFloat32, shape),
                           *Tensor::Zeros(DType::kFloat32, lse_shape)};
    const Tensor sinks = Given({2}, {0, 1});
    const MergeResult merged = Merged({part, part}, {.sinks = sinks.view()});
    EXPECT_EQ(merged.output.shape, shape);
    EXPECT_EQ(merged.lse.shape, lse_shape);
    EXPECT_TRUE(merged.output.data.empty() && merged.lse.data.empty());
  }
}

TEST(MergeNonFinite, AnLseOfNaNOrPlusInfinityMakesItsRowNaN) {
  for (const float bad : {kNaN, kInf, -kNaN}) {
    for (const float other : {-kInf, -1e30f, 0.0f, kMaxFloat}) {
      const MergeResult part = Row({1, kInf}, bad);
      ExpectRow(Merged({part, Row({2, kInf}, other)}), {kNaN, kNaN}, kNaN);
      ExpectRow(Merged({Row({2, kInf}, other), part}), {kNaN, kNaN}, kNaN);
    }
    ExpectRow(Merged({Row({1, 2}, bad)}), {kNaN, kNaN}, kNaN);
  }
}

TEST(MergeNonFinite, AnOutputThatIsNotFiniteAddsItself) {
  const Tensor sinks = Given({1}, {kMaxFloat});
  for (const float bad : {kNaN, kInf, -kInf}) {
    for (const float lse :
         {-1e30f, 0.0f, 5.0f}) {  // its weight may underflow: it is there all the same
      const std::vector<MergeResult> parts = {Row({1, bad}, 5), Row({1, 2}, lse)};
      EXPECT_TRUE(SameKind(Merged(parts).output.ToFloats()[1], bad));
      EXPECT_NEAR(Merged(parts).output.ToFloats()[0], 1, 1e-6);
      EXPECT_TRUE(std::isfinite(Merged(parts).lse.ToFloats()[0]));
      EXPECT_TRUE(SameKind(Merged(parts, {.sinks = sinks.view()}).output.ToFloats()[1], bad));
    }
  }
  ExpectRow(Merged({Row({kInf, 1}, 5), Row({-kInf, 1}, 5)}), {kNaN, 1}, 5.693147181f);
}

TEST(MergeNonFinite, NaNStaysInItsRow) {
  const Request whole = Whole(Layout::kBatchHeadsLength);
  const std::vector<MergeResult> clean = AnswersBetween(whole, {0, 9, 23});
  std::vector<MergeResult> dirty = clean;
  StoreFloat(DType::kFloat32, dirty[0].lse.data.data() + 4 * 3, kNaN);      // row 3
  StoreFloat(DType::kFloat32, dirty[1].output.data.data() + 4 * 31, kNaN);  // row 10, element 1
  const std::vector<float> before = Merged(clean).output.ToFloats();
  const std::vector<float> after = Merged(dirty).output.ToFloats();
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i / 3 == 3 || i == 31) {
      EXPECT_TRUE(std::isnan(after[i])) << i;
    } else {
      EXPECT_EQ(after[i], before[i]) << i;
    }
  }
}

TEST(MergeNonFinite, IsWhatTheReferenceSaysOfTheWhole) {
  Request whole = Whole(Layout::kBatchHeadsLength);
  whole.sinks = Normal(DType::kFloat32, {6}, 7);
  StoreFloat(DType::kFloat32, whole.query.data.data() + 4 * 5 * 8, kNaN);  // a row of head 1
  StoreFloat(DType::kFloat32, whole.value.data.data() + 4 * 3 * 2, kInf);  // key 2
  StoreFloat(DType::kFloat32, whole.value.data.data() + 4 * (3 * 12 + 1), -kInf);
  whole.args.options.causal = true;
  whole.args.options.alignment = Alignment::kLast;
  ExpectSplitsAreTheWhole(whole);
}

// --- Views --------------------------------------------------------------------------------------

// Copies a dense tensor into memory where its axes lie in reverse order, two elements apart, at an
// odd address.
struct Scattered {
  std::vector<std::byte> memory;
  TensorView view;

  explicit Scattered(const Tensor& tensor) {
    const std::size_t size = SizeOf(tensor.dtype);
    memory.resize(1 + 2 * tensor.data.size(), std::byte{0x7f});
    view = tensor.view();
    view.data = memory.data() + 1;
    std::int64_t stride = 2;
    for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
      view.strides[axis] = stride;
      stride *= view.shape[axis];
    }
    for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
      std::int64_t rest = i;
      std::int64_t offset = 0;
      for (std::size_t axis = view.shape.size(); axis-- > 0;) {
        offset += rest % view.shape[axis] * view.strides[axis];
        rest /= view.shape[axis];
      }
      std::copy_n(tensor.data.data() + i * size, size, memory.data() + 1 + offset * size);
    }
  }
};

TEST(MergeViews, StridedOnesGiveTheSameBits) {  // pitfalls A19, A56
  for (const Layout layout : kLayouts) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      Request whole = Whole(layout, dtype);
      whole.sinks = Normal(DType::kFloat32, {6}, 7);
      const std::vector<MergeResult> answers = AnswersBetween(whole, {0, 9, 23}, dtype);
      std::deque<Scattered> scattered;
      std::vector<AttentionPart> parts;
      for (const MergeResult& answer : answers) {
        const TensorView& output = scattered.emplace_back(answer.output).view;
        parts.push_back({.output = output, .lse = scattered.emplace_back(answer.lse).view});
      }
      MergeOptions options = OptionsOf(whole);
      const MergeResult dense = Merged(answers, options);
      options.sinks = scattered.emplace_back(*whole.sinks).view;
      const auto strided = Merge(parts, options);
      ASSERT_TRUE(strided.ok()) << strided.status();
      EXPECT_EQ(strided->output.data, dense.output.data);
      EXPECT_EQ(strided->lse.data, dense.lse.data);
    }
  }
}

}  // namespace
}  // namespace attend::testing

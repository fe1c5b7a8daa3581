// The float64 reference itself: every step, every edge (the edges by the fast path too), and a
// second computation that shares no code with it.
#include "core/base/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "tests/unit/core/worked_examples.h"

namespace attend::testing {
namespace {

ReferenceResult Reference(const Request& request) {
  const auto problem = AttentionProblem::Create(request.Args());
  EXPECT_TRUE(problem.ok()) << problem.status();
  return ReferenceAttention(problem.value());
}

bool AllNaN(const Numbers& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isnan(x); });
}

// --- A row, step by step ------------------------------------------------------------------------

TEST(ReferenceRow, ShowsEveryStep) {
  Request request;
  request.query = Matrix(2, 2, {0, 0, 2, 1});
  request.key = Matrix(4, 2, {1, 0, 0, 3, -1, 1, 5, 5});
  request.value = Matrix(4, 2, {1, -1, 2, -2, 3, -3, kNaN, kNaN});
  request.args.options.scale = 0.5f;
  request.args.options.softcap = 2;
  request.args.options.causal = true;
  request.args.options.alignment = Alignment::kOffsets;
  request.args.options.query_offsets = {1};
  request.alibi_slopes = Given({1}, {0.25f});
  request.additive_mask = Given({4}, {0.5f, -kInf, 1, 0});
  const auto problem = AttentionProblem::Create(request.Args());
  ASSERT_TRUE(problem.ok()) << problem.status();
  const ReferenceRow row = ReferenceAttentionRow(*problem, 0, 0, 1);  // stands at key 2
  EXPECT_EQ(row.visible, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(row.products, (Numbers{2, 3, -1, 15}));
  EXPECT_EQ(row.scaled, (Numbers{1, 1.5, -0.5, 7.5}));
  for (int j = 0; j < 4; ++j) {
    EXPECT_DOUBLE_EQ(row.capped[j], 2 * std::tanh(row.scaled[j] / 2)) << j;
  }
  EXPECT_DOUBLE_EQ(row.biased[0], row.capped[0] - 0.25 * 2 + 0.5);
  EXPECT_EQ(row.biased[1], -kInf);
  EXPECT_DOUBLE_EQ(row.biased[2], row.capped[2] + 1);
  EXPECT_EQ(row.biased[3], -kInf);
  const double sum = std::exp(row.biased[0]) + std::exp(row.biased[2]);
  EXPECT_DOUBLE_EQ(row.lse, std::log(sum));
  EXPECT_DOUBLE_EQ(row.weights[0], std::exp(row.biased[0]) / sum);
  EXPECT_EQ(row.weights[1], 0);
  EXPECT_DOUBLE_EQ(row.weights[2], std::exp(row.biased[2]) / sum);
  EXPECT_EQ(row.weights[3], 0);
  const double output = row.weights[0] * 1 + row.weights[2] * 3;
  EXPECT_DOUBLE_EQ(row.output[0], output);
  EXPECT_DOUBLE_EQ(row.output[1], -output);
  EXPECT_DOUBLE_EQ(row.magnitude[1], output);
}

// --- A second computation -----------------------------------------------------------------------

// Item 1, without the library's views, masks, ranges or shifted exponentials: plain loops over the
// request's own numbers.
TEST(Reference, EqualsASecondComputationWithEveryOptionOn) {
  constexpr int kHeads = 6;
  constexpr int kKvHeads = 2;
  constexpr int kQueries = 7;
  constexpr int kKeys = 150;
  constexpr int kDim = 5;
  constexpr int kValueDim = 3;
  Request request = MakeRequest({2, kHeads, kKvHeads, kQueries, kKeys, kDim, kValueDim});
  request.args.query_lengths = {7, 6};
  request.args.kv_lengths = {9, 141};
  request.args.options.scale = 0.7f;
  request.args.options.softcap = 3;
  request.args.options.causal = true;
  request.args.options.alignment = Alignment::kLast;  // item 1: query 0 at 141 - 6
  request.args.options.window_left = 100;
  request.alibi_slopes = Normal(DType::kFloat32, {2, kHeads}, 7, 0.1f);
  request.sinks = Normal(DType::kFloat32, {kHeads}, 8);
  request.boolean_mask = Bools({kQueries, kKeys}, 9, 0.8);
  request.additive_mask = Normal(DType::kFloat32, {2, 1, 1, kKeys}, 10);
  request.blocks = Bools({kHeads, 1, 3}, 11, 0.7);
  request.args.output.weights = true;
  const ReferenceResult reference = Reference(request);

  const Numbers q = Doubles(request.query);
  const Numbers k = Doubles(request.key);
  const Numbers v = Doubles(request.value);
  const Numbers slopes = Doubles(*request.alibi_slopes);
  const Numbers bias = Doubles(*request.additive_mask);
  const Numbers sinks = Doubles(*request.sinks);
  for (int h = 0; h < kHeads; ++h) {
    const int g = h / 3;
    for (int i = 0; i < kQueries; ++i) {
      Numbers exponentials(kKeys, 0.0);
      double sum = 0;
      for (int j = 0; i < 6 && j <= 135 + i; ++j) {
        const bool on = request.boolean_mask->data[i * kKeys + j] == std::byte{1} &&
                        request.blocks->data[h * 3 + j / 64] == std::byte{1} && j >= 35 + i;
        if (!on) continue;
        double product = 0;
        for (int d = 0; d < kDim; ++d) {
          product += q[((kHeads + h) * kQueries + i) * kDim + d] *
                     k[((kKvHeads + g) * kKeys + j) * kDim + d];
        }
        double score = 3 * std::tanh(product * static_cast<double>(0.7f) / 3);
        score += bias[kKeys + j] - slopes[kHeads + h] * (135 + i - j);
        exponentials[j] = std::exp(score);
        sum += exponentials[j];
      }
      const int row = (kHeads + h) * kQueries + i;
      const double lse = sum == 0 ? -static_cast<double>(kInf) : std::log(sum);
      ASSERT_TRUE(lse == reference.lse[row] || std::abs(lse - reference.lse[row]) < 1e-12)
          << lse << " " << reference.lse[row];
      const double denominator = sum + std::exp(sinks[h]);
      for (int d = 0; d < kValueDim; ++d) {
        double output = 0;
        for (int j = 0; j < kKeys; ++j) {
          output += exponentials[j] * v[((kKvHeads + g) * kKeys + j) * kValueDim + d];
        }
        ASSERT_NEAR(reference.output[row * kValueDim + d], output / denominator, 1e-13);
      }
      for (int j = 0; j < kKeys; ++j) {
        ASSERT_NEAR(reference.weights[row * kKeys + j], exponentials[j] / denominator, 1e-14);
      }
    }
  }
}

// --- Rows that see nothing ----------------------------------------------------------------------

// Of a request of one row, by the fast path too.
void ExpectEmptyRow(const Request& request) {
  const std::vector<Answer> answers = BothAnswers(request);
  ASSERT_EQ(answers.size(), 2);
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.lse, Numbers{-static_cast<double>(kInf)}) << answer.path;
    EXPECT_EQ(answer.output, Numbers(request.value.shape[3], 0)) << answer.path;
    EXPECT_EQ(answer.weights, Numbers(request.value.shape[2], 0)) << answer.path;
  }
}

TEST(EmptyRow, ByEveryKindOfExclusion) {  // pitfalls A4
  std::vector<Request> requests(7, MakeRequest({1, 1, 1, 1, 70, 4, 3}));
  requests[0].args.kv_lengths = {0};
  requests[1].boolean_mask = Bools({1}, 1, 0);
  requests[2].additive_mask = Given({1}, {-kInf});
  requests[3].blocks = Bools({2}, 1, 0);
  requests[4].args.options.causal = true;
  requests[5].args.options.window_right = 2;
  for (const int i : {4, 5}) {
    requests[i].args.options.alignment = Alignment::kOffsets;
    requests[i].args.options.query_offsets = {-3};
  }
  requests[6].args.query_lengths = {0};
  for (Request& request : requests) {
    request.sinks = Given({1}, {2});
    ExpectEmptyRow(request);
  }
}

TEST(EmptyRow, EvenWhereEverythingIsNaN) {  // pitfalls A4, A34
  Request request = MakeRequest({1, 1, 1, 1, 3, 1, 3});
  for (Tensor* tensor : {&request.query, &request.key, &request.value}) {
    *tensor = Given(tensor->shape, std::vector<float>(tensor->num_elements(), kNaN));
  }
  request.boolean_mask = Bools({3}, 1, 0);
  request.alibi_slopes = Given({1}, {0.5f});
  ExpectEmptyRow(request);
}

TEST(EmptyRow, WhereOneMaskLeavesWhatTheOtherExcludes) {  // pitfalls A8, A28
  Request request = MakeRequest({1, 1, 1, 1, 2, 4, 3});
  request.boolean_mask = Bools({2}, 1, 1);
  request.boolean_mask->data[0] = std::byte{0};
  request.additive_mask = Given({2}, {0, -kInf});
  ExpectEmptyRow(request);
}

// --- What is not finite -------------------------------------------------------------------------

TEST(ReferenceNonFinite, NaNOrPlusInfinityInAScoreMakesItsRowNaN) {
  for (const float bad : {kNaN, kInf}) {
    Request request = MakeRequest({1, 1, 1, 2, 3, 1, 2});
    request.query = Matrix(2, 1, {1, -1});
    request.key = Matrix(3, 1, {0.5f, bad, 2});
    request.args.output.weights = true;
    const ReferenceResult result = Reference(request);
    EXPECT_TRUE(AllNaN({result.output.begin(), result.output.begin() + 2}));
    EXPECT_TRUE(AllNaN({result.weights.begin(), result.weights.begin() + 3}));
    EXPECT_TRUE(std::isnan(result.lse[0]));
    // To the second row the infinity is a score of -inf: a weight of 0.
    EXPECT_EQ(std::isnan(result.output[2]), std::isnan(bad));
    if (!std::isnan(bad)) {
      EXPECT_EQ(result.weights[4], 0);
    }
  }
}

TEST(ReferenceNonFinite, NaNInOneQueryIsNaNInItsRowAlone) {
  Request request = MakeRequest({2, 2, 1, 3, 4, 2, 2});
  StoreFloat(DType::kFloat32, request.query.data.data() + 4 * (2 * 4 + 1), kNaN);  // row 4
  const ReferenceResult result = Reference(request);
  for (int row = 0; row < 12; ++row) {
    EXPECT_EQ(std::isnan(result.output[row * 2]), row == 4) << row;
    EXPECT_EQ(std::isnan(result.output[row * 2 + 1]), row == 4) << row;
  }
}

TEST(ReferenceNonFinite, AVisibleValueAddsItselfToItsColumn) {
  for (const float bad : {kNaN, kInf, -kInf}) {
    Request request = MakeRequest({1, 1, 1, 3, 3, 2, 2});
    StoreFloat(DType::kFloat32, request.value.data.data() + 4 * (1 * 2 + 1), bad);
    request.args.options.causal = true;
    const ReferenceResult result = Reference(request);
    for (int row = 0; row < 3; ++row) {
      EXPECT_TRUE(std::isfinite(result.output[row * 2])) << row;
      const double sees = result.output[row * 2 + 1];
      const bool as_is = std::isnan(bad) ? std::isnan(sees) : sees == bad;
      EXPECT_TRUE(row == 0 ? std::isfinite(sees) : as_is) << row << " " << sees;
    }
  }
}

TEST(ReferenceNonFinite, InfinitiesOfBothSignsAreNaN) {
  Request request = Uniform(1, {kInf, -kInf, 1});
  EXPECT_TRUE(std::isnan(Reference(request).output[0]));
}

TEST(ReferenceNonFinite, AnExcludedKeyOrValueChangesNoBit) {  // pitfalls A32
  Request clean = MakeRequest({1, 1, 1, 2, 3, 2, 2});
  clean.boolean_mask = Bools({3}, 1, 1);
  clean.boolean_mask->data[1] = std::byte{0};
  Request dirty = clean;
  for (Tensor* tensor : {&dirty.key, &dirty.value}) {
    StoreFloat(DType::kFloat32, tensor->data.data() + 4 * 2, kNaN);
    StoreFloat(DType::kFloat32, tensor->data.data() + 4 * 3, kInf);
  }
  EXPECT_EQ(Reference(clean).output, Reference(dirty).output);
  EXPECT_EQ(Reference(clean).lse, Reference(dirty).lse);
}

// --- Sinks and large numbers --------------------------------------------------------------------

TEST(Reference, ASinkFarAboveTheScoresLeavesNothing) {
  Request request = Uniform(1, {1, 2});
  request.sinks = Given({1}, {3e38f});
  request.args.output.weights = true;
  const ReferenceResult result = Reference(request);
  EXPECT_EQ(result.weights, (Numbers{0, 0}));
  EXPECT_EQ(result.output, Numbers{0});
  EXPECT_NEAR(result.lse[0], std::log(2), 1e-15);
}

TEST(Reference, AddingAConstantToAllScoresChangesNoWeight) {  // pitfalls A62
  Request request = MakeRequest({1, 1, 1, 2, 5, 4, 3});
  const ReferenceResult plain = Reference(request);
  request.additive_mask = Given({1}, {1000});
  const ReferenceResult shifted = Reference(request);
  for (std::size_t i = 0; i < plain.output.size(); ++i) {
    EXPECT_NEAR(plain.output[i], shifted.output[i], 1e-12);
  }
  for (std::size_t i = 0; i < plain.lse.size(); ++i) {
    EXPECT_NEAR(plain.lse[i] + 1000, shifted.lse[i], 1e-12);
  }
}

TEST(Heads, OfQueriesReadTheKvHeadOfTheirGroup) {  // pitfalls A46, A47
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int, int>>{
           {12, 3}, {28, 4}, {32, 8}, {48, 2}, {64, 8}, {71, 1}, {6, 6}}) {
    Request request;
    request.query = Given({1, heads, 1, 1}, std::vector<float>(heads));
    request.key = Given({1, kv_heads, 1, 1}, std::vector<float>(kv_heads));
    std::vector<float> values(kv_heads);
    for (int g = 0; g < kv_heads; ++g) values[g] = static_cast<float>(g);
    request.value = Given({1, kv_heads, 1, 1}, values);
    for (const Answer& answer : BothAnswers(request)) {
      for (int h = 0; h < heads; ++h) {
        EXPECT_EQ(answer.output[h], h / (heads / kv_heads)) << answer.path;
      }
    }
  }
}

TEST(Reference, PaddingOfScoresIsZeroOrMinusInfinityWhereBiased) {
  Request request = MakeRequest({1, 1, 1, 2, 3, 2, 2});
  request.args.query_lengths = {1};
  request.args.kv_lengths = {2};
  for (const ScoreStage stage : {ScoreStage::kScaled, ScoreStage::kCapped, ScoreStage::kBiased}) {
    for (const Answer& answer : BothAnswers(request, stage)) {
      const double padding = stage == ScoreStage::kBiased ? -static_cast<double>(kInf) : 0;
      for (const int at : {2, 3, 4, 5}) EXPECT_EQ(answer.scores[at], padding) << answer.path;
    }
  }
}

}  // namespace
}  // namespace attend::testing

// The numbers of worked-examples.md and of pitfalls.md part A, by the reference and by the fast
// path. None of them comes from this project's code.
#include "tests/unit/core/worked_examples.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace attend::testing {
namespace {

constexpr double kFourDigits = 5.1e-5;
constexpr double kSixDigits = 2.5e-6;

// --- Worked examples ----------------------------------------------------------------------------

// One causal step: the third query of three tokens, d_k = 2.
Request CausalStep() {
  Request request;
  request.query = Matrix(3, 2, {0, 0, 0, 0, 1, 1});
  request.key = Matrix(3, 2, {1, 0, 0, 1, 1, 1});
  request.value = Matrix(3, 1, {1, 2, 3});
  request.args.options.causal = true;
  return request;
}

TEST(WorkedExample, CausalStepScaled) {
  for (const Answer& answer : BothAnswers(CausalStep())) {
    const Numbers scores(answer.scores.end() - 3, answer.scores.end());
    ExpectNear(scores, {0.7071, 0.7071, 1.4142}, kFourDigits, answer);
    const Numbers weights(answer.weights.end() - 3, answer.weights.end());
    ExpectNear(weights, {0.2483, 0.2483, 0.5035}, kFourDigits, answer);
  }
}

TEST(WorkedExample, CausalStepUnscaled) {
  Request request = CausalStep();
  request.args.options.scale = 1;
  for (const Answer& answer : BothAnswers(request)) {
    const Numbers weights(answer.weights.end() - 3, answer.weights.end());
    ExpectNear(weights, {0.2119, 0.2119, 0.5761}, kFourDigits, answer);
  }
}

TEST(WorkedExample, CausalStepAloneAtTheEndOfTheKeys) {
  Request request = CausalStep();
  request.query = Matrix(1, 2, {1, 1});
  request.args.options.alignment = Alignment::kLast;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.weights, {0.2483, 0.2483, 0.5035}, kFourDigits, answer);
  }
}

TEST(WorkedExample, RootOfHeadDimKeepsAGapOfOneSigmaTheSame) {
  for (const auto& [dim, unscaled] :
       std::vector<std::pair<std::int64_t, double>>{{4, 0.8808}, {64, 0.99966}, {1024, 1.0}}) {
    Request request;
    std::vector<float> query(dim, 0.0f);
    std::vector<float> keys(2 * dim, 0.0f);
    query[0] = 1;
    keys[0] = std::sqrt(static_cast<float>(dim));
    request.query = Matrix(1, dim, query);
    request.key = Matrix(2, dim, keys);
    request.value = Matrix(2, 1, {1, 0});
    for (const Answer& answer : BothAnswers(request)) {
      EXPECT_NEAR(answer.weights[0], 0.7311, kFourDigits) << dim << answer.path;
      EXPECT_NEAR(answer.output[0], 0.7311, kFourDigits) << dim << answer.path;
    }
    request.args.options.scale = 1;
    for (const Answer& answer : BothAnswers(request)) {
      EXPECT_NEAR(answer.weights[0], unscaled, kFourDigits) << dim << answer.path;
    }
  }
}

TEST(WorkedExample, ThreeKeysOfDimensionFour) {
  Request request;
  request.query = Matrix(1, 4, {1, 0, 0, 0});
  request.key = Matrix(3, 4, {2.4f, 0, 0, 0, 1.8f, 0, 0, 0, 3.1f, 0, 0, 0});
  request.value = Matrix(3, 4, {.5f, .8f, .3f, .6f, .7f, .4f, .9f, .2f, .6f, .5f, .7f, .8f});
  for (const Answer& answer : BothAnswers(request, ScoreStage::kScaled)) {
    ExpectNear(answer.scores, {1.2, 0.9, 1.55}, 1e-6, answer);
    ExpectNear(answer.weights, {0.3165, 0.2344, 0.4491}, kFourDigits, answer);
    ExpectNear(answer.output, {0.591798, 0.571496, 0.620302, 0.596040}, kSixDigits, answer);
  }
}

TEST(WorkedExample, SimplestSelfAttention) {
  Request request;
  request.query = Matrix(3, 4, {1, .5f, .2f, .8f, .3f, 1.2f, .6f, .4f, .9f, .1f, 1.1f, .7f});
  request.key = request.query;
  request.value = request.query;
  request.args.options.scale = 1;
  request.args.options.causal = true;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output,
               {1, .5, .2, .8, 0.530719, 0.969281, 0.468160, 0.531840, 0.821989, 0.393607, 0.781143,
                0.673902},
               kSixDigits, answer);
    ExpectNear(answer.weights, {1, 0, 0, 0.329599, 0.670401, 0, 0.258150, 0.173043, 0.568807},
               kSixDigits, answer);
  }
}

// --- Pitfalls with a number ---------------------------------------------------------------------

TEST(PitfallNumber, A7MostNegativeFiniteMaskIsABias) {
  Request request = Uniform(1, {1, 2, 3});
  request.additive_mask =
      Given({1, 3}, std::vector<float>(3, std::numeric_limits<float>::lowest()));
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {2.0}, kSixDigits, answer);
    ExpectNear(answer.weights, {1.0 / 3, 1.0 / 3, 1.0 / 3}, kSixDigits, answer);
  }
}

TEST(PitfallNumber, A10MaskOfTheMostNegativeFloat16IsAddedInFloat32) {
  Request request;
  request.query = As(DType::kFloat16, Matrix(1, 1, {1}));
  request.key = As(DType::kFloat16, Matrix(3, 1, {-16, -16, -16}));
  request.value = As(DType::kFloat16, Matrix(3, 1, {1, 2, 3}));
  request.additive_mask =
      Tensor::FromFloats(DType::kFloat16, {3}, std::vector<float>(3, -65504.0f));
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {2.0}, kSixDigits, answer);
    ExpectNear(answer.scores, {-65520, -65520, -65520}, 0.01, answer);
  }
}

TEST(PitfallNumber, A22CausalQueryAloneSeesByAlignment) {
  Request request = Uniform(1, {1, 2, 3, 4});
  request.args.options.causal = true;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {1.0}, kSixDigits, answer);
  }
  request.args.options.alignment = Alignment::kLast;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {2.5}, kSixDigits, answer);
  }
}

TEST(PitfallNumber, A23CausalWithMoreQueriesThanKeys) {
  Request request = Uniform(5, {1, 2});
  request.args.options.causal = true;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {1, 1.5, 1.5, 1.5, 1.5}, kSixDigits, answer);
  }
  request.args.options.alignment = Alignment::kLast;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {0, 0, 0, 1, 1.5}, kSixDigits, answer);
    const double inf = kInf;
    ExpectNear(answer.lse, {-inf, -inf, -inf, 0, std::log(2)}, kSixDigits, answer);
  }
}

TEST(PitfallNumber, A26OffsetsAreEachItemsOwn) {
  Request request;
  request.query = Given({2, 1, 2, 1}, {0, 0, 0, 0});
  request.key = Given({1, 1, 4, 1}, {1, 1, 1, 1});
  request.value = Given({1, 1, 4, 1}, {1, 2, 3, 4});
  request.args.kv_lengths = {2, 4};
  request.args.options.causal = true;
  request.args.options.alignment = Alignment::kLast;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {1, 1.5, 2, 2.5}, kSixDigits, answer);
  }
}

TEST(PitfallNumber, A59FourThousandEqualLogitsOfFloat16) {
  Request request = Uniform(1, std::vector<float>(4096, 1.0f));
  for (Tensor* tensor : {&request.query, &request.key, &request.value}) {
    *tensor = As(DType::kFloat16, *tensor);
  }
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.weights, Numbers(4096, 1.0 / 4096), 1e-9, answer);
    ExpectNear(answer.output, {1}, kSixDigits, answer);
  }
}

TEST(PitfallNumber, A64SoftcapComesBeforeTheMask) {
  Request request = Uniform(1, {1, 2});
  request.args.options.softcap = 1;
  request.boolean_mask = Bools({1, 2}, 1, 1);
  request.boolean_mask->data[1] = std::byte{0};
  for (const Answer& answer : BothAnswers(request)) {
    EXPECT_EQ(answer.weights, (Numbers{1, 0})) << answer.path;
    EXPECT_EQ(answer.output, Numbers{1}) << answer.path;
  }
}

TEST(PitfallNumber, A65SoftcapComesBeforeTheBias) {
  Request request = Uniform(1, {1});
  request.query = Matrix(1, 1, {60});
  request.args.options.softcap = 50;
  request.additive_mask = Given({1}, {10});
  for (const Answer& answer : BothAnswers(request, ScoreStage::kBiased)) {
    ExpectNear(answer.scores, {51.683}, 5e-4, answer);
  }
  for (const Answer& answer : BothAnswers(request, ScoreStage::kCapped)) {
    ExpectNear(answer.scores, {41.683}, 5e-4, answer);
  }
  request.args.options.softcap = 0;
  for (const Answer& answer : BothAnswers(request, ScoreStage::kBiased)) {
    ExpectNear(answer.scores, {70}, 1e-5, answer);
  }
}

TEST(PitfallNumber, A67WindowDoesNotCountTheQuerysOwnKey) {
  Request request = Uniform(11, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  request.args.options.causal = true;
  request.args.options.window_left = 3;  // four keys with its own
  for (const Answer& answer : BothAnswers(request)) {
    EXPECT_NEAR(answer.output[10], 9.5, kSixDigits * 10) << answer.path;
    EXPECT_NEAR(answer.output[1], 1.5, kSixDigits) << answer.path;
  }
  request.args.options.window_left = 4;
  for (const Answer& answer : BothAnswers(request)) {
    EXPECT_NEAR(answer.output[10], 9.0, kSixDigits * 10) << answer.path;
  }
  request.args.options.window_left = 0;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, kSixDigits * 10, answer);
  }
}

// The slopes of n heads as the papers have them (A73: 6 and 12 heads, A74: 8), each used for its
// head, as a penalty on the distance to both sides.
TEST(PitfallNumber, A73AndA74SlopesArePenaltiesOfTheirHeads) {
  for (const std::vector<float>& slopes :
       {std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f},
        std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f, 0.0078125f,
                           0.00390625f},
        std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f, 0.0078125f,
                           0.00390625f, 0.70710678f, 0.35355339f, 0.17677670f, 0.08838835f}}) {
    const auto heads = static_cast<std::int64_t>(slopes.size());
    Request request;
    request.query = Given({1, heads, 3, 1}, std::vector<float>(3 * heads));
    request.key = Given({1, 1, 5, 1}, {1, 1, 1, 1, 1});
    request.value = Given({1, 1, 5, 1}, {1, 2, 3, 4, 5});
    request.alibi_slopes = Given({heads}, slopes);
    request.args.options.alignment = Alignment::kLast;  // query 0 stands at key 2
    Numbers expected;
    for (const float slope : slopes) {
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 5; ++j) expected.push_back(-slope * std::abs(i + 2 - j));
      }
    }
    for (const Answer& answer : BothAnswers(request)) {
      ExpectNear(answer.scores, expected, 1e-6, answer);
    }
  }
}

TEST(PitfallNumber, A89LseIsInNaturalLogarithms) {
  for (const Answer& answer : BothAnswers(Uniform(1, {1, 2}))) {
    ExpectNear(answer.lse, {0.693147}, kSixDigits, answer);
  }
}

TEST(PitfallNumber, A91ScalesOfZeroAndMinusOne) {
  Request request = Uniform(3, {1, 2, 3});
  request.query = Matrix(3, 1, {5, 6, 7});
  request.key = Matrix(3, 1, {3, -1, 4});
  request.args.options.causal = true;
  request.args.options.scale = 0;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {1, 1.5, 2}, kSixDigits, answer);
  }
  request = Uniform(1, {1, 2});
  request.query = Matrix(1, 1, {1});
  request.key = Matrix(2, 1, {1, 0});
  request.args.options.scale = -1;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {1.731059}, kSixDigits, answer);
  }
  request.additive_mask = Given({2}, {0, -kInf});
  for (const float scale : {0.0f, -1.0f}) {  // the mask is not scaled with the products
    request.args.options.scale = scale;
    for (const Answer& answer : BothAnswers(request)) ExpectNear(answer.output, {1}, 0, answer);
  }
}

// --- Properties ---------------------------------------------------------------------------------

Request Tokens(std::uint32_t seed = 1) { return MakeRequest({1, 4, 2, 9, 9, 8, 5}, seed); }

// Rows `order` of every head of a [1, heads, 9, dim] tensor.
Tensor Shuffled(const Tensor& tensor, const std::vector<int>& order) {
  const std::vector<float> values = tensor.ToFloats();
  const std::int64_t dim = tensor.shape[3];
  std::vector<float> result;
  for (std::int64_t head = 0; head < tensor.shape[1]; ++head) {
    for (const int row : order) {
      const auto begin = values.begin() + (head * 9 + row) * dim;
      result.insert(result.end(), begin, begin + dim);
    }
  }
  return Given(tensor.shape, result);
}

TEST(Property, WeightsOfARowSumToOne) {
  for (const bool causal : {false, true}) {
    Request request = Tokens();
    request.args.options.causal = causal;
    for (const Answer& answer : BothAnswers(request)) {
      for (std::size_t row = 0; row < answer.weights.size(); row += 9) {
        double sum = 0;
        for (std::size_t j = row; j < row + 9; ++j) sum += answer.weights[j];
        EXPECT_NEAR(sum, 1, 2e-6) << answer.path;
      }
    }
  }
}

TEST(Property, ShufflingTheTokensShufflesTheOutput) {
  const std::vector<int> order = {3, 8, 0, 5, 1, 7, 2, 6, 4};
  const Request request = Tokens();
  Request shuffled = request;
  for (Tensor* tensor : {&shuffled.query, &shuffled.key, &shuffled.value}) {
    *tensor = Shuffled(*tensor, order);
  }
  const std::vector<Answer> before = BothAnswers(request);
  const std::vector<Answer> after = BothAnswers(shuffled);
  for (std::size_t path = 0; path < before.size(); ++path) {
    const Numbers& output = before[path].output;
    const Tensor tensor = Given({1, 4, 9, 5}, {output.begin(), output.end()});
    ExpectNear(after[path].output, Doubles(Shuffled(tensor, order)), 4e-6, after[path]);
  }
}

TEST(Property, CausalRowsDoNotChangeWhenLaterTokensDo) {  // pitfalls A14
  Request request = Tokens();
  request.args.options.causal = true;
  Request other = request;
  const Request noise = Tokens(77);
  for (const auto& [tensor, from] :
       {std::pair{&other.key, &noise.key}, std::pair{&other.value, &noise.value}}) {
    const std::size_t row = tensor->data.size() / 2 / 9;
    for (std::size_t head = 0; head < 2; ++head) {  // tokens 4 and on
      std::copy_n(from->data.begin() + (head * 9 + 4) * row, 5 * row,
                  tensor->data.begin() + (head * 9 + 4) * row);
    }
  }
  const std::vector<Answer> before = BothAnswers(request);
  const std::vector<Answer> after = BothAnswers(other);
  for (std::size_t path = 0; path < before.size(); ++path) {
    for (std::size_t i = 0; i < before[path].output.size(); ++i) {
      const bool early = i / 5 % 9 < 4;
      EXPECT_EQ(before[path].output[i] == after[path].output[i], early)
          << before[path].path << " [" << i << "]";
    }
  }
}

TEST(Property, ScalingChangesSharpnessAndNotOrder) {
  Request request = Tokens();
  request.args.options.scale = 0.1f;
  const std::vector<Answer> soft = BothAnswers(request);
  request.args.options.scale = 1.0f;
  const std::vector<Answer> sharp = BothAnswers(request);
  for (std::size_t path = 0; path < soft.size(); ++path) {
    for (std::size_t row = 0; row < soft[path].weights.size(); row += 9) {
      const auto a = soft[path].weights.begin() + row;
      const auto b = sharp[path].weights.begin() + row;
      EXPECT_EQ(std::max_element(a, a + 9) - a, std::max_element(b, b + 9) - b);
      EXPECT_GT(*std::max_element(b, b + 9), *std::max_element(a, a + 9));
      for (int i = 0; i < 9; ++i) {
        for (int j = 0; j < 9; ++j) EXPECT_EQ(a[i] < a[j], b[i] < b[j]);
      }
    }
  }
}

TEST(Property, SinkTakesItsShareOfTheSumAndNothingOfLse) {
  const Request request = Tokens();
  Request with_sinks = request;
  with_sinks.sinks = Given({4}, {-kInf, -2, 0.5f, 3});
  const std::vector<Answer> before = BothAnswers(request);
  const std::vector<Answer> after = BothAnswers(with_sinks);
  const double sinks[] = {0, std::exp(-2), std::exp(0.5), std::exp(3)};
  for (std::size_t path = 0; path < before.size(); ++path) {
    EXPECT_EQ(before[path].lse, after[path].lse);
    for (std::size_t row = 0; row < 4 * 9; ++row) {
      double sum = 0;
      for (std::size_t j = 0; j < 9; ++j) sum += after[path].weights[row * 9 + j];
      const double keys = std::exp(before[path].lse[row]);
      EXPECT_NEAR(sum, keys / (keys + sinks[row / 9]), 4e-6) << after[path].path;
    }
  }
}

}  // namespace
}  // namespace attend::testing

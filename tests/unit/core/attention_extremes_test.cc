// Legal numbers at the ends of their ranges, by the fast path and the reference.
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "tests/unit/core/worked_examples.h"

namespace attend::testing {
namespace {

TEST(AttentionExtremes, LargestScaleOfTinyProducts) {
  Request request;
  request.query = Matrix(1, 1, {1e-19f});
  request.key = Matrix(3, 1, {1e-19f, -1e-19f, 0});
  request.value = Matrix(3, 1, {1, 2, 4});
  for (const float scale : {1e38f, 3e38f, -3e38f, std::numeric_limits<float>::max()}) {
    request.args.options.scale = scale;
    const double s = static_cast<double>(scale) * 1e-19 * 1e-19;
    const double sum = std::exp(s) + std::exp(-s) + 1;
    for (const Answer& answer : BothAnswers(request)) {
      ExpectNear(answer.weights, {std::exp(s) / sum, std::exp(-s) / sum, 1 / sum}, 4e-6, answer);
      ExpectNear(answer.lse, {std::log(sum)}, 4e-6, answer);
    }
  }
}

TEST(AttentionExtremes, SmallestScalesAreUniform) {
  Request request = Uniform(1, {1, 2, 3});
  request.query = Matrix(1, 1, {1e10f});
  for (const float scale : {1e-45f, 1e-38f, -1e-38f, 1e-30f}) {
    request.args.options.scale = scale;
    for (const Answer& answer : BothAnswers(request)) ExpectNear(answer.output, {2}, 4e-6, answer);
  }
}

TEST(AttentionExtremes, FarthestOffsetsSeeAllOrNothing) {
  const std::int64_t far = std::int64_t{1} << 40;
  Request request = Uniform(2, {1, 2, 3});
  request.args.options.alignment = Alignment::kOffsets;
  request.args.options.causal = true;
  for (const std::int64_t offset : {far, -far}) {
    request.args.options.query_offsets = {offset};
    const double mean = offset > 0 ? 2 : 0;
    for (const Answer& answer : BothAnswers(request)) {
      ExpectNear(answer.output, {mean, mean}, 4e-6, answer);
    }
    request.args.options.window_left = 100;
    for (const Answer& answer : BothAnswers(request)) ExpectNear(answer.output, {0, 0}, 0, answer);
    request.args.options.window_left.reset();
  }
}

TEST(AttentionExtremes, ScoresAsFarApartAsFloat32AllowsGiveOneKeyAll) {
  Request request = Uniform(1, {1, 2, 3});
  request.query = Matrix(1, 1, {1});
  request.key = Matrix(3, 1, {-1e38f, 1e38f, 0});
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {2}, 0, answer);
    ExpectNear(answer.weights, {0, 1, 0}, 0, answer);
  }
}

TEST(AttentionExtremes, SubnormalValuesAreKept) {
  Request request = Uniform(1, {2e-42f, 4e-42f});
  for (const Answer& answer : BothAnswers(request))
    ExpectNear(answer.output, {3e-42}, 2e-45, answer);
}

TEST(AttentionExtremes, SinksAtBothEnds) {
  Request request = Uniform(1, {1, 2});
  for (const float sink : {-3e38f, 3e38f}) {
    request.sinks = Given({1}, {sink});
    for (const Answer& answer : BothAnswers(request)) {
      ExpectNear(answer.output, {sink < 0 ? 1.5 : 0}, 4e-6, answer);
      ExpectNear(answer.lse, {std::log(2)}, 4e-6, answer);
    }
  }
}

TEST(AttentionExtremes, SubnormalSoftcapsGiveNoNaN) {
  Request request = Uniform(1, {1, 2});
  request.args.options.softcap = 1e-41f;
  for (const Answer& answer : BothAnswers(request)) ExpectNear(answer.output, {1.5}, 4e-6, answer);
}

TEST(AttentionExtremes, AnInfiniteScoreIsNaNWithAndWithoutAMask) {
  Request request = MakeRequest({.kv_len = 2});
  request.query = Given({1, 1, 1, 1}, {1e30f});
  request.key = Given({1, 1, 2, 1}, {1, 1});
  request.args.options.scale = 1e20f;
  for (const bool masked : {false, true}) {
    if (masked) request.boolean_mask = Bools({2}, 1, 1.0);
    const auto outputs = Compute(*AttentionProblem::Create(request.Args()));
    ASSERT_TRUE(outputs.ok());
    EXPECT_TRUE(std::isnan(outputs->output.ToFloats()[0]));
    EXPECT_TRUE(std::isnan(outputs->lse.ToFloats()[0]));
  }
}

TEST(AttentionExtremes, MasksOfTheLargestFiniteNumbers) {
  const float large = std::numeric_limits<float>::max();
  Request request = Uniform(1, {1, 2, 3});
  request.additive_mask = Given({3}, {large, -large, large});
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.weights, {0.5, 0, 0.5}, 4e-6, answer);
    ExpectNear(answer.output, {2}, 4e-6, answer);
  }
}

}  // namespace
}  // namespace attend::testing

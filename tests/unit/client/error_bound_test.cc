// The bound of `attend sdpa --check`: that the server's kernel stays within it, and that little
// else would.
#include "client/cli/error_bound.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <utility>
#include <vector>

#include "client/cli/check.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::cli {
namespace {

constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kLength = 192;
constexpr std::int64_t kDim = 64;
constexpr std::size_t kHeadSize = kLength * kDim;

std::vector<float> Normal(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kHeads * kHeadSize);
  for (float& value : values) value = normal(random);
  return values;
}

// The rows of each head, each `by` rows further on.
std::vector<float> Shifted(const std::vector<float>& rows, std::size_t by) {
  std::vector<float> shifted;
  for (std::size_t head = 0; head < kHeads; ++head) {
    for (std::size_t i = 0; i < kHeadSize; ++i) {
      shifted.push_back(rows[head * kHeadSize + (i + by * kDim) % kHeadSize]);
    }
  }
  return shifted;
}

struct Inputs {
  std::vector<float> query, key, value;
  AttentionArgs args;

  Inputs(std::vector<float> q, std::vector<float> k, std::vector<float> v)
      : query(std::move(q)), key(std::move(k)), value(std::move(v)) {
    const Dims shape = {1, kHeads, kLength, kDim};
    args.query = FloatTensorView(query, shape);
    args.key = FloatTensorView(key, shape);
    args.value = FloatTensorView(value, shape);
    args.output.lse = true;
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
};

// The kernel's answer against the reference.
CheckReport CheckKernel(const AttentionArgs& args) {
  const auto problem = AttentionProblem::Create(args);
  EXPECT_TRUE(problem.ok()) << problem.status();
  const auto outputs = attend::testing::Compute(*problem);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  AttendResult result{.output = outputs->output, .lse = outputs->lse};
  const auto report = CheckAgainstReference(args, result);
  EXPECT_TRUE(report.ok()) << report.status();
  return *report;
}

// Each query meets its own copy among the keys: scores near 8, of products that are all positive,
// so that partial sums and their roundings grow as far as they can.
TEST(ErrorBoundTest, HoldsForKeysThatAreShiftedQueries) {
  double largest = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const std::vector<float> query = Normal(seed);
    for (const std::size_t shift : {1, 7, 100}) {
      Inputs inputs(query, Shifted(query, shift), Normal(1000 + seed));
      const CheckReport report = CheckKernel(inputs.args);
      EXPECT_TRUE(report.passed())
          << "seed " << seed << " shift " << shift << ": " << report.max_error_over_bound;
      largest = std::max(largest, report.max_error_over_bound);
    }
  }
  RecordProperty("max_error_over_bound", std::to_string(largest));
  EXPECT_GT(largest, 0.05);  // of a bound that says something
}

TEST(ErrorBoundTest, HoldsForScoresOfAnySize) {
  for (const float scale : {0.01f, 0.5f, 1.0f, 10.0f, 1000.0f, 1e6f}) {
    const std::vector<float> query = Normal(3);
    Inputs inputs(query, Shifted(query, 5), Normal(4));
    inputs.args.options.scale = scale;
    const CheckReport report = CheckKernel(inputs.args);
    EXPECT_TRUE(report.passed()) << scale << ": " << report.max_error_over_bound;
  }
}

// Errors of equal keys are equal, and do not average out.
TEST(ErrorBoundTest, HoldsForKeysThatRepeat) {
  const std::vector<float> query = Normal(5);
  std::vector<float> key = query;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = query[i % (2 * kDim)];
  for (const float scale : {0.125f, 5.0f}) {
    Inputs inputs(query, key, Normal(6));
    inputs.args.options.scale = scale;
    EXPECT_TRUE(CheckKernel(inputs.args).passed()) << scale;
  }
}

TEST(ErrorBoundTest, HoldsForValuesOfOneSignAndForEveryOption) {
  std::vector<float> value = Normal(7);
  for (float& number : value) number = std::abs(number);
  const std::vector<float> query = Normal(8);
  Inputs inputs(query, Shifted(query, 2), value);
  EXPECT_TRUE(CheckKernel(inputs.args).passed());
  const std::vector<float> slopes = {0.5f, 0.01f};
  const std::vector<float> sinks = {3.0f, -INFINITY};
  inputs.args.options = {.softcap = 6,
                         .causal = true,
                         .alibi_slopes = FloatTensorView(slopes, {kHeads}),
                         .sinks = FloatTensorView(sinks, {kHeads})};
  EXPECT_TRUE(CheckKernel(inputs.args).passed());
}

// The promise of design for unit-variance inputs is 2e-6 of the weighted sizes of the values.
TEST(ErrorBoundTest, IsNearThePromiseForUnitVariance) {
  Inputs inputs(Normal(9), Normal(10), Normal(11));
  const auto problem = AttentionProblem::Create(inputs.args);
  ASSERT_TRUE(problem.ok()) << problem.status();
  ErrorBound error_bound(*problem);
  for (std::int64_t row = 0; row < kLength; ++row) {
    const ReferenceRow reference = ReferenceAttentionRow(*problem, 0, 1, row);
    const RowBounds bounds = error_bound.Of(0, 1, row, reference);
    double bound = 0;
    double promised = 0;
    for (std::size_t i = 0; i < kDim; ++i) {
      EXPECT_GT(bounds.output[i], 2e-6 * reference.magnitude[i]);
      bound += bounds.output[i];
      promised += 2e-6 * reference.magnitude[i];
    }
    EXPECT_LT(bound, 3 * promised) << "row " << row;  // most where few keys have all the weight
  }
}

// Where nothing is known of the weights the output is still a mean of the values.
TEST(ErrorBoundTest, NeverExceedsWhatAMeanOfTheValuesCanBe) {
  const std::vector<float> query = Normal(12);
  std::vector<float> key = query;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = query[i % kDim];
  Inputs inputs(query, key, Normal(13));
  inputs.args.options.scale = 1e30f;
  const auto problem = AttentionProblem::Create(inputs.args);
  ASSERT_TRUE(problem.ok()) << problem.status();
  ErrorBound error_bound(*problem);
  const RowBounds bounds = error_bound.Of(0, 0, 3, ReferenceAttentionRow(*problem, 0, 0, 3));
  for (const double bound : bounds.output) {
    EXPECT_LT(bound, 10);
    EXPECT_GT(bound, 0.01);
  }
}

}  // namespace
}  // namespace attend::cli

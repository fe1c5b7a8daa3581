#include <cmath>
#include <limits>
#include <string>

#include "core/base/reference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/requests.h"

namespace attend::testing {

namespace {

using ::testing::ElementsAreArray;

// design.md: |o - o*| <= 2e-6 * sum_j w_j |v_j| for unit-variance inputs.
constexpr double kOutputBound = 2e-6;
// A score is a float32 dot product: with its softmax it moves by this much, relative to itself and
// absolutely, at the sizes that these tests use.
constexpr double kScoreBound = 4e-6;

// Half a unit in the last place, relative.
double RoundingOf(DType dtype) {
  if (dtype == DType::kBFloat16) return 0x1p-8;
  return dtype == DType::kFloat16 ? 0x1p-11 : 0;
}

bool SameNonFinite(double got, double want) {
  return std::isnan(want) ? std::isnan(got) : got == want;
}

// Expects each |got - want| <= absolute(i) + relative * |want|; what is not finite must be equal.
template <typename Absolute>
void ExpectNear(const std::string& name, const v1::Tensor& got, const Dims& shape, DType dtype,
                const std::vector<double>& want, Absolute absolute, double relative) {
  ASSERT_EQ(got.dtype(), ToProto(dtype)) << name;
  ASSERT_THAT(got.shape(), ElementsAreArray(shape)) << name;
  const std::vector<float> values = FloatsOf(got);
  ASSERT_EQ(values.size(), want.size()) << name;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(values[i] - want[i]);
    const bool close = std::isfinite(want[i]) ? error <= absolute(i) + relative * std::abs(want[i])
                                              : SameNonFinite(values[i], want[i]);
    ASSERT_TRUE(close) << name << "[" << i << "] is " << values[i] << "; expected " << want[i];
  }
}

}  // namespace

void ExpectMatchesReference(const v1::AttendRequest& request, const v1::AttendResponse& response) {
  const auto problem = AttentionProblem::Create(ToArgs(request));
  ASSERT_TRUE(problem.ok()) << problem.status();
  const ReferenceResult want = ReferenceAttention(*problem);

  const double smallest = problem->output_dtype() == DType::kFloat16 ? 0x1p-25 : 0;
  ExpectNear(
      "output", response.output(), problem->output_shape(), problem->output_dtype(), want.output,
      [&](std::size_t i) { return kOutputBound * want.magnitude[i] + smallest; },
      RoundingOf(problem->output_dtype()));
  const auto score_bound = [](std::size_t) { return kScoreBound; };
  ASSERT_EQ(response.has_lse(), problem->wants_lse());
  if (response.has_lse()) {
    ExpectNear("lse", response.lse(), problem->lse_shape(), DType::kFloat32, want.lse, score_bound,
               kScoreBound);
  }
  ASSERT_EQ(response.has_weights(), problem->wants_weights());
  if (response.has_weights()) {
    ExpectNear("weights", response.weights(), problem->score_shape(), DType::kFloat32, want.weights,
               score_bound, kScoreBound);
  }
  ASSERT_EQ(response.has_scores(), problem->score_stage() != ScoreStage::kNone);
  if (response.has_scores()) {
    ExpectNear("scores", response.scores(), problem->score_shape(), DType::kFloat32, want.scores,
               score_bound, kScoreBound);
  }
  EXPECT_EQ(response.stats().dot_products(), problem->dot_products());
  EXPECT_EQ(response.stats().flops(), problem->flops());
  EXPECT_GE(response.stats().batch_size(), 1);
  EXPECT_FALSE(response.stats().server().empty());
}

}  // namespace attend::testing

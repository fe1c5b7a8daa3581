#include "tests/unit/core/attention_check.h"

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "core/base/reference.h"

namespace attend::testing {

void ExpectMatchesReference(const Request& request, double widen, Machine& machine) {
  const auto problem = AttentionProblem::Create(request.Args());
  ASSERT_TRUE(problem.ok()) << problem.status();
  const ReferenceResult expected = ReferenceAttention(*problem);
  const auto outputs = Compute(*problem, machine);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const DType dtype = problem->output_dtype();
  const std::vector<float> output = outputs->output.ToFloats();
  ASSERT_EQ(output.size(), expected.output.size());
  for (std::size_t i = 0; i < output.size(); ++i) {
    const double want = expected.output[i];
    ASSERT_TRUE(SameKind(output[i], want)) << "output[" << i << "] " << output[i] << " " << want;
    if (!std::isfinite(want)) continue;
    const double bound = widen * 2e-6 * expected.magnitude[i] + RoundingOf(dtype) * std::abs(want) +
                         StepOf(dtype) + 1e-38;
    ASSERT_NEAR(output[i], want, bound * 1.001) << "output[" << i << "]";
  }
  const std::vector<float> lse = outputs->lse.ToFloats();
  for (std::size_t i = 0; i < lse.size(); ++i) {
    ASSERT_TRUE(SameKind(lse[i], expected.lse[i])) << "lse[" << i << "] " << lse[i];
    if (!std::isfinite(lse[i])) continue;
    ASSERT_NEAR(lse[i], expected.lse[i], widen * 2e-6 * (1 + std::abs(expected.lse[i])))
        << "lse[" << i << "]";
  }
  const std::vector<float> weights = outputs->weights.ToFloats();
  for (std::size_t i = 0; i < expected.weights.size(); ++i) {
    ASSERT_TRUE(SameKind(weights[i], expected.weights[i])) << "weights[" << i << "] " << weights[i];
    if (!std::isfinite(weights[i])) continue;
    ASSERT_NEAR(weights[i], expected.weights[i], widen * 4e-6 * expected.weights[i] + 1e-37)
        << "weights[" << i << "]";
  }
  const std::vector<float> scores = outputs->scores.ToFloats();
  for (std::size_t i = 0; i < expected.scores.size(); ++i) {
    ASSERT_TRUE(SameKind(scores[i], expected.scores[i])) << "scores[" << i << "] " << scores[i];
    if (!std::isfinite(scores[i])) continue;
    ASSERT_NEAR(scores[i], expected.scores[i], widen * 2e-6 * (1 + std::abs(expected.scores[i])))
        << "scores[" << i << "]";
  }
}

void ExpectSameBits(const Request& a, const Request& b, Machine& machine_of_a,
                    Machine& machine_of_b) {
  const auto problem_a = AttentionProblem::Create(a.Args());
  const auto problem_b = AttentionProblem::Create(b.Args());
  ASSERT_TRUE(problem_a.ok() && problem_b.ok()) << problem_a.status() << problem_b.status();
  const auto outputs_a = Compute(*problem_a, machine_of_a);
  const auto outputs_b = Compute(*problem_b, machine_of_b);
  ASSERT_TRUE(outputs_a.ok() && outputs_b.ok()) << outputs_a.status() << outputs_b.status();
  EXPECT_EQ(outputs_a->output.data, outputs_b->output.data);
  EXPECT_EQ(outputs_a->lse.data, outputs_b->lse.data);
  EXPECT_EQ(outputs_a->weights.data, outputs_b->weights.data);
  EXPECT_EQ(outputs_a->scores.data, outputs_b->scores.data);
}

}  // namespace attend::testing

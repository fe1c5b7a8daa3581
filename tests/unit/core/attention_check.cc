#include "tests/unit/core/attention_check.h"

#include <gtest/gtest.h>
#include <utility>

namespace attend::testing {

void ExpectMatchesReference(const Request& request, Accuracy accuracy, Machine& machine) {
  const auto problem = AttentionProblem::Create(request.Args());
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto outputs = Compute(*problem, machine);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(DifferenceFromReference(*problem, *outputs, accuracy), "");
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

Outputs MustCompute(const Request& request, Machine& machine) {
  const auto problem = AttentionProblem::Create(request.Args());
  EXPECT_TRUE(problem.ok()) << problem.status();
  auto outputs = Compute(problem.value(), machine);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return std::move(outputs).value();
}

}  // namespace attend::testing

#include "tests/unit/core/attention_check.h"

#include <gtest/gtest.h>

namespace attend::testing {

void ExpectMatchesReference(const Request& request, Accuracy accuracy) {
  const auto problem = AttentionProblem::Create(request.Args());
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto outputs = Compute(*problem);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(DifferenceFromReference(*problem, *outputs, accuracy), "");
}

}  // namespace attend::testing

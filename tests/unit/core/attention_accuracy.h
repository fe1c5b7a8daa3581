// How far the fast path may be from the float64 reference, without a test framework.
#ifndef ATTEND_TESTS_UNIT_CORE_ATTENTION_ACCURACY_H_
#define ATTEND_TESTS_UNIT_CORE_ATTENTION_ACCURACY_H_

#include <string>

#include "core/base/attention_problem.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {

enum class Accuracy {
  // design.md's promise for unit-variance inputs: 2e-6 * sum_j w_j |v_j|.
  kUnitVariance,
  // The same, plus the most that float32 can lose in scores of any size and any options, as
  // core/attention/attention.h derives it. attention_accuracy.cc spells out the terms.
  kAnyScores,
};

// Compares every output with the reference: what is finite within the bound and the rounding to
// the output's dtype, what is not by its kind, what is padding exactly. Tells the first
// difference, or nothing. Left out is what leaves the range of float32 or of the output's dtype.
std::string DifferenceFromReference(const AttentionProblem& problem, const Outputs& outputs,
                                    Accuracy accuracy);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_ATTENTION_ACCURACY_H_

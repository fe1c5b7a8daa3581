// The fast path held against the float64 reference.
#ifndef ATTEND_TESTS_UNIT_CORE_ATTENTION_CHECK_H_
#define ATTEND_TESTS_UNIT_CORE_ATTENTION_CHECK_H_

#include "tests/unit/core/attention_accuracy.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {

// Checks every output of `request` against the reference.
void ExpectMatchesReference(const Request& request, Accuracy accuracy = Accuracy::kUnitVariance);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_ATTENTION_CHECK_H_

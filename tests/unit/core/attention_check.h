// The fast path held against the float64 reference, and against itself.
#ifndef ATTEND_TESTS_UNIT_CORE_ATTENTION_CHECK_H_
#define ATTEND_TESTS_UNIT_CORE_ATTENTION_CHECK_H_

#include "tests/unit/core/attention_accuracy.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {

// Checks every output of `request` against the reference.
void ExpectMatchesReference(const Request& request, Accuracy accuracy = Accuracy::kUnitVariance,
                            Machine& machine = SharedMachine());

// Checks that two requests of the same shapes give the same bits in every output.
void ExpectSameBits(const Request& a, const Request& b, Machine& machine_of_a = SharedMachine(),
                    Machine& machine_of_b = SharedMachine());

// The outputs of a legal request.
Outputs MustCompute(const Request& request, Machine& machine = SharedMachine());

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_ATTENTION_CHECK_H_

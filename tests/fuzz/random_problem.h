// Random requests for attention, all of them valid: every option, sizes at the edges of the
// kernel's tiles, numbers of any size and some that are none.
#ifndef ATTEND_TESTS_FUZZ_RANDOM_PROBLEM_H_
#define ATTEND_TESTS_FUZZ_RANDOM_PROBLEM_H_

#include <string>

#include "tests/fuzz/byte_source.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {

// The same bytes give the same request. Bounded in work: the reference takes milliseconds.
Request RandomProblem(ByteSource& bytes);

// A request in words, for the one who has to find out what is wrong with its answer.
std::string Describe(const Request& request);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_FUZZ_RANDOM_PROBLEM_H_

// What holds of every request for attention.
#ifndef ATTEND_TESTS_FUZZ_ATTENTION_PROPERTIES_H_
#define ATTEND_TESTS_FUZZ_ATTENTION_PROPERTIES_H_

#include <string>

#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {

// Computes `request` in every way there is and tells the first thing that is wrong, or nothing:
//   - what one thread computes is what the reference says, within the derived bound;
//   - two threads give the same bits, from and to memory that is not aligned, and without the
//     outputs that nobody asked for;
//   - so they do beside `neighbour`, in one batch, which gets its own bits too;
//   - keys and values that no query sees change no bit, whatever they hold.
std::string FaultOf(const Request& request, const Request& neighbour);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_FUZZ_ATTENTION_PROPERTIES_H_

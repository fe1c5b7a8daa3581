// Requests that are malformed, one kind each.
#ifndef ATTEND_TESTS_INTEGRATION_MALFORMED_REQUESTS_H_
#define ATTEND_TESTS_INTEGRATION_MALFORMED_REQUESTS_H_

#include <functional>
#include <ostream>
#include <vector>

#include "attend/v1/attention.pb.h"

namespace attend::testing {

// What is done to a valid request (2 items, 4 query heads, 2 KV heads, 3 queries, 5 keys,
// head_dim 8, value_dim 6), and the field that must be named.
struct BadRequestCase {
  const char* name;
  std::function<void(v1::AttendRequest&)> spoil;
  const char* field;
  // What the message must hold besides: the value, or what was expected.
  const char* message = "expected";
};

inline void PrintTo(const BadRequestCase& param, std::ostream* out) { *out << param.name; }

std::vector<BadRequestCase> TensorCases();
std::vector<BadRequestCase> LengthCases();
std::vector<BadRequestCase> ScalarCases();
std::vector<BadRequestCase> MaskCases();
std::vector<BadRequestCase> OptionTensorCases();
std::vector<BadRequestCase> OutputCases();

}  // namespace attend::testing

#endif  // ATTEND_TESTS_INTEGRATION_MALFORMED_REQUESTS_H_

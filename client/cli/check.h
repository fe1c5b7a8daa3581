// A server's answer against the float64 reference.
#ifndef ATTEND_CLIENT_CLI_CHECK_H_
#define ATTEND_CLIENT_CLI_CHECK_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/json_output.h"
#include "client/cpp/client.h"
#include "core/base/attention_problem.h"

namespace attend::cli {

struct CheckReport {
  std::int64_t elements = 0;        // compared, of output and LSE
  double max_error = 0;             // largest |output - reference|
  double max_error_over_bound = 0;  // largest error as a share of its bound; infinite where one of
                                    // the two is NaN or an infinity and the other is not
  bool passed() const { return max_error_over_bound <= 1; }
};

// Compares output, and LSE where present, element by element, with the definition of
// attention_problem.h computed in float64.
//
// The bound of an output element is r * sum_j w_j |v_j| + u_out * |o|.
// r is 2e-6 while the row's largest score S, in magnitude, is at most 8; past it the larger of 2e-6
// and 2^-23 * S * sqrt(head_dim): the score and its distance from the row's maximum are each
// rounded to float32, and over the head_dim terms of a product such errors add up as the square
// root of their number. bfloat16 inputs add 2^-8, since their weights may be rounded to bfloat16.
// u_out is the rounding of the output's dtype: 0 for FLOAT32 (it is part of r), 2^-8 for BFLOAT16,
// 2^-11 for FLOAT16 (and at least 2^-25 in all, for what is below its normal numbers).
// The bound of an LSE is r * max(1, |LSE|).
//
// Of more than `max_rows` rows (over items and heads) so many are compared, evenly spread.
//
// Errors: INVALID_ARGUMENT for a problem that is none, or a result of another shape than asked for.
// Cost: as the reference's of the rows compared; a row of scores at a time.
absl::StatusOr<CheckReport> CheckAgainstReference(
    const AttentionArgs& args, const AttendResult& result,
    std::int64_t max_rows = std::numeric_limits<std::int64_t>::max());

// "check: 393216 elements, largest error 1.2e-07, 0.31 of its bound: passed".
std::string RenderCheck(const CheckReport& report);
Json ToJson(const CheckReport& report);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_CHECK_H_

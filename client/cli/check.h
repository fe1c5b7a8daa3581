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
  std::int64_t nan_elements = 0;    // NaN in both: as it should be where inputs hold a NaN
  std::int64_t nan_in_one = 0;      // NaN in the answer or in the reference, and not in the other
  double max_error = 0;             // largest |output - reference|
  double max_error_over_bound = 0;  // largest error as a share of its bound; infinite where one of
                                    // the two is NaN or an infinity and the other is not
  bool passed() const { return max_error_over_bound <= 1; }
};

// Compares output, and LSE where present, element by element, with the definition of
// attention_problem.h computed in float64.
//
// error_bound.h derives the bounds. To that of an output element comes the rounding to the output's
// dtype: none for FLOAT32 (it is part of the bound), 2^-8 |o| for BFLOAT16, 2^-11 |o| for FLOAT16
// (and at least 2^-25, for what is below its normal numbers). NaN must stand where the reference
// has NaN.
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

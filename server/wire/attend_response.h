// The results of core as an AttendResponse.
#ifndef ATTEND_SERVER_WIRE_ATTEND_RESPONSE_H_
#define ATTEND_SERVER_WIRE_ATTEND_RESPONSE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attend/v1/attention.pb.h"
#include "core/attention/attention.h"
#include "core/base/attention_problem.h"
#include "server/schedule/scheduler.h"

namespace attend {

// At least the size of the response's message, and close to it. Saturates at the largest int64.
std::int64_t ResponseBytes(const AttentionProblem& problem);

// INVALID_ARGUMENT, naming the field of the request to ask less of, if the response could be larger
// than `max_message_bytes`.
absl::Status CheckResponseSize(const AttentionProblem& problem, std::int64_t max_message_bytes);

// Puts the result tensors that the problem wants, zeros for now, into `response`, and says where
// their bytes are: the kernel writes the message itself. The addresses hold until the response's
// tensors are touched again. CheckResponseSize must have passed.
// Errors: RESOURCE_EXHAUSTED if memory cannot be had.
absl::StatusOr<AttentionOutputs> AllocateResponse(const AttentionProblem& problem,
                                                  v1::AttendResponse& response);

// What happened to the request, on the server of that name.
void FillStats(const AttentionProblem& problem, const TaskStats& stats, absl::string_view server,
               v1::Stats& to);

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_ATTEND_RESPONSE_H_

// AttentionArgs to the API's message.
#ifndef ATTEND_CLIENT_CPP_REQUEST_H_
#define ATTEND_CLIENT_CPP_REQUEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attend/v1/attention.pb.h"
#include "client/cpp/client_options.h"
#include "core/base/attention_problem.h"

namespace attend::client_internal {

// Fills an empty message; strided views are copied dense. What a request means is checked by the
// server alone: here only that the views can be read.
//
// Errors: INVALID_ARGUMENT that names the field, for negative or overflowing sizes, strides that do
// not match the shape, or a null pointer to elements; RESOURCE_EXHAUSTED where the tensors alone
// are larger than `max_message_bytes`. Nothing is copied in either case.
absl::Status FillRequest(const AttentionArgs& args, CallPriority priority,
                         std::int64_t max_message_bytes, v1::AttendRequest* request);

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_REQUEST_H_

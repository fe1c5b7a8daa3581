// AttentionArgs to the API's message.
#ifndef ATTEND_CLIENT_CPP_REQUEST_H_
#define ATTEND_CLIENT_CPP_REQUEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attend/v1/attention.pb.h"
#include "client/cpp/client_options.h"
#include "client/cpp/shared_memory.h"
#include "core/base/attention_problem.h"

namespace attend::client_internal {

// Fills an empty message; strided views are copied dense. What a request means is checked by the
// server alone: here only that the views can be read.
//
// With `memory`: tensors and results of at least kLeastSharedBytes go into one slice of it, which
// `slice` becomes and which the message names without its handle, if there is room for all of them.
// Otherwise, and without `memory`, everything is sent in the message.
//
// Errors: INVALID_ARGUMENT that names the field, for negative or overflowing sizes, strides that do
// not match the shape, or a null pointer to elements; RESOURCE_EXHAUSTED where the tensors in the
// message alone are larger than `max_message_bytes`; those of SharedMemory::Take. Nothing is copied
// in any case.
absl::Status FillRequest(const AttentionArgs& args, CallPriority priority,
                         std::int64_t max_message_bytes, v1::AttendRequest* request,
                         SharedMemory* memory = nullptr, SharedSlice* slice = nullptr);

// Smaller ones cost less in the message than a read or a write of the server's.
inline constexpr std::int64_t kLeastSharedBytes = 4096;

// Bytes of what a request is answered with; 0 for what it does not ask for. All 0 where the shapes
// make no sense, which the server will say.
struct ResultBytes {
  std::int64_t output = 0;
  std::int64_t lse = 0;
  std::int64_t weights = 0;
  std::int64_t scores = 0;
};
ResultBytes ResultBytesOf(const AttentionArgs& args);

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_REQUEST_H_

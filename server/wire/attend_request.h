// AttendRequest as the arguments of core.
#ifndef ATTEND_SERVER_WIRE_ATTEND_REQUEST_H_
#define ATTEND_SERVER_WIRE_ATTEND_REQUEST_H_

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attend/v1/attention.pb.h"
#include "core/base/attention_problem.h"
#include "server/wire/message_cutter.h"
#include "server/wire/shared_memory_range.h"

namespace attend {

// The elements of a request's tensors, by RequestTensor; empty for those that have none.
using TensorPayloads = std::span<const std::span<const std::byte>, kNumRequestTensors>;

// Everything of the request that says what to compute, priority and timeout left out. `payloads`
// stands for the bytes of its tensors, whose storage is looked at only for its presence. The views
// of the result point into the payloads, whose bytes are not read; nothing is copied but short
// lists, whose lengths are checked first.
//
// Errors: INVALID_ARGUMENT that names the field, for an enum value that is none, a missing query,
// key or value, a list longer than limits.max_batch, and whatever ToTensorView refuses;
// UNIMPLEMENTED for fields that this server does not know; for results that shall go to shared
// memory as CheckSharedMemoryAccess. What the values mean together is checked by
// AttentionProblem::Create.
absl::StatusOr<AttentionArgs> ToAttentionArgs(const v1::AttendRequest& request,
                                              TensorPayloads payloads,
                                              const AttentionLimits& limits,
                                              const SharedMemoryAccess& access);

// The request's tensor, as its message says it; null if it has none.
const v1::Tensor* MessageOf(const v1::AttendRequest& request, RequestTensor tensor);

// The same for a message whose tensors hold their data, which the views point into; shared memory
// is UNIMPLEMENTED.
absl::StatusOr<AttentionArgs> ToAttentionArgs(const v1::AttendRequest& request,
                                              const AttentionLimits& limits);

// The time that the answer may take, infinite if unset. INVALID_ARGUMENT naming "timeout" unless it
// is positive and valid.
absl::StatusOr<absl::Duration> ToTimeout(const v1::AttendRequest& request);

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_ATTEND_REQUEST_H_

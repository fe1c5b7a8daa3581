// absl::Status to grpc::Status: the one place where errors become what callers see.
#ifndef ATTEND_SERVER_WIRE_STATUS_H_
#define ATTEND_SERVER_WIRE_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace attend {

// The same code and message, and, as the "grpc-status-details-bin" trailer, an attend.v1.Error
// (wire-equal to google.rpc.Status) with
//   a google.rpc.BadRequest where the status names a field (see core/base/status.h), and
//   a google.rpc.RetryInfo of `retry_delay` where the code is RESOURCE_EXHAUSTED.
// Texts are clipped and made printable ASCII: a client refuses trailers above 8 KiB as a whole.
// Throws std::bad_alloc.
grpc::Status ToGrpcStatus(const absl::Status& status, absl::Duration retry_delay);

// What is said without memory for more: RESOURCE_EXHAUSTED, so short that a string holds its text
// without memory, and without details.
grpc::Status OutOfMemory();

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_STATUS_H_

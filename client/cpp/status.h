// grpc::Status to absl::Status: the one place of the client that knows both.
#ifndef ATTEND_CLIENT_CPP_STATUS_H_
#define ATTEND_CLIENT_CPP_STATUS_H_

#include <cstdint>
#include <grpcpp/support/status.h>
#include <optional>

#include "absl/status/status.h"

namespace attend::client_internal {

// Keeps the code and the message; a first field violation in the details is put in front, as
// InvalidField and UnimplementedField do, and the details travel along for errors.h. A message past
// a size limit is said to be so, with the side whose limit to raise.
// `max_message_bytes`: the client's own limit.
absl::Status ToAbslStatus(const grpc::Status& status, std::int64_t max_message_bytes);

// The limit that a message was larger than; nothing where gRPC says nothing of the kind.
std::optional<std::int64_t> BrokenSizeLimit(const grpc::Status& status);

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_STATUS_H_

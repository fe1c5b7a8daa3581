// The API's messages to the client's results.
#ifndef ATTEND_CLIENT_CPP_RESPONSE_H_
#define ATTEND_CLIENT_CPP_RESPONSE_H_

#include "absl/status/statusor.h"
#include "attend/v1/attention.pb.h"
#include "client/cpp/client.h"

namespace attend::client_internal {

// INTERNAL, naming the tensor, where shape, dtype and bytes of the answer disagree.
absl::StatusOr<AttendResult> ToResult(const v1::AttendResponse& response);

ServerInfo ToServerInfo(const v1::ServerInfo& message);

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_RESPONSE_H_

// The API's messages to the client's results.
#ifndef ATTEND_CLIENT_CPP_RESPONSE_H_
#define ATTEND_CLIENT_CPP_RESPONSE_H_

#include "absl/status/statusor.h"
#include "attend/v1/attention.pb.h"
#include "client/cpp/client.h"
#include "client/cpp/shared_memory.h"

namespace attend::client_internal {

// Copies tensors out of the response, or out of `slice` of shared memory where the response says
// that they are there. INTERNAL, naming the tensor, where shape, dtype and bytes of the answer
// disagree, or it names what is not in the slice.
absl::StatusOr<AttendResult> ToResult(const v1::AttendResponse& response,
                                      const SharedSlice& slice = {});

ServerInfo ToServerInfo(const v1::ServerInfo& message);

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_RESPONSE_H_

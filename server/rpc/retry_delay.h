// What a caller is told who was refused for want of room.
#ifndef ATTEND_SERVER_RPC_RETRY_DELAY_H_
#define ATTEND_SERVER_RPC_RETRY_DELAY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "absl/time/time.h"

namespace attend {

// When a refused caller should come back: a different time for each, since clients take a pushback
// to the letter, and those that were refused together should not return together.
absl::Duration RetryDelay();

// Says in the call's trailing metadata, as gRPC's clients read it, what the status says in its
// RetryInfo. Does nothing for a status other than RESOURCE_EXHAUSTED, nor without memory for it.
void AddPushback(const grpc::Status& status, absl::Duration retry_delay,
                 grpc::ServerContextBase& context);

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_RETRY_DELAY_H_

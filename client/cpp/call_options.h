// CallOptions as gRPC wants them.
#ifndef ATTEND_CLIENT_CPP_CALL_OPTIONS_H_
#define ATTEND_CLIENT_CPP_CALL_OPTIONS_H_

#include <chrono>
#include <grpcpp/client_context.h>
#include <optional>

#include "absl/status/status.h"
#include "client/cpp/client_options.h"

namespace attend::client_internal {

inline constexpr std::chrono::milliseconds kNoTimeout{0};

// INVALID_ARGUMENT for a timeout or metadata that gRPC does not take; it aborts the process on
// some of them.
absl::Status CheckCallOptions(const CallOptions& options);

// `timeout`: what is left of it; nothing where there is none. The options must have passed
// CheckCallOptions.
void FillContext(const CallOptions& options, std::optional<std::chrono::nanoseconds> timeout,
                 grpc::ClientContext* context);

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_CALL_OPTIONS_H_

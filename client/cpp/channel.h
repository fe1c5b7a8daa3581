// ClientOptions as gRPC wants them.
#ifndef ATTEND_CLIENT_CPP_CHANNEL_H_
#define ATTEND_CLIENT_CPP_CHANNEL_H_

#include <cstdint>
#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/client_options.h"

namespace attend::client_internal {

// What a channel is for. Health is watched on kCalls only: a channel that watches lets no call
// through while the server is NOT_SERVING, and kControl is what asks the server about that.
enum class ChannelUse : std::uint8_t { kCalls, kControl };

// INVALID_ARGUMENT that names the option, its value and what was expected.
absl::Status CheckOptions(const ClientOptions& options);

// Whether calls of Attend go over streams or through shared memory. Their attempts are then made
// again by the Dispatcher: gRPC would repeat a stream as a whole, and shared memory while an
// attempt that broke off may still use it.
bool NeedsDispatcher(const ClientOptions& options);

// Bytes of a call's messages that may be kept for another attempt.
std::int64_t RetryBufferBytes(const ClientOptions& options);

// gRPC's service config, as JSON: retries, and with watch_health the health check, which gRPC makes
// only under a balancing policy other than its default.
std::string ServiceConfigJson(const ClientOptions& options, ChannelUse use);

// `index`: of the connection; channels of different indices share none.
grpc::ChannelArguments ChannelArgumentsFor(const ClientOptions& options, ChannelUse use, int index);

std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options, ChannelUse use, int index);

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_CHANNEL_H_

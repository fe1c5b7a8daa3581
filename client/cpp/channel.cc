#include "client/cpp/channel.h"

#include <algorithm>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/client.h"
#include "core/base/status.h"

namespace attend::client_internal {

namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxAttempts = 5;  // gRPC cuts larger values down to this
constexpr int kMaxConnections = 64;
constexpr std::int64_t kMaxSharedMemoryBytes = std::int64_t{1} << 40;
constexpr std::chrono::milliseconds kMinKeepaliveInterval{10'000};
constexpr int kInitialReconnectBackoffMs = 200;
constexpr int kMaxReconnectBackoffMs = 5'000;
constexpr int kIdentityCompressionOnly = 1;

absl::Status CheckRange(absl::string_view field, std::int64_t value, std::int64_t low,
                        std::int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; expected ", low, " to ", high));
}

absl::Status CheckRetry(const RetryOptions& retry) {
  absl::Status status = CheckRange("retry.max_attempts", retry.max_attempts, 1, kMaxAttempts);
  status.Update(CheckRange("retry.initial_backoff", retry.initial_backoff.count(), 1, kMaxInt));
  status.Update(CheckRange("retry.max_backoff", retry.max_backoff.count(), 1, kMaxInt));
  status.Update(CheckRange("retry.buffer_bytes", retry.buffer_bytes, 0, kMaxInt));
  if (!(retry.backoff_multiplier >= 1 && retry.backoff_multiplier <= 100)) {
    status.Update(
        InvalidField("retry.backoff_multiplier",
                     absl::StrCat("is ", retry.backoff_multiplier, "; expected 1 to 100")));
  }
  return status;
}

// As protobuf's JSON spells a Duration.
std::string Seconds(std::chrono::milliseconds value) {
  return absl::StrFormat("%d.%03ds", value.count() / 1000, value.count() % 1000);
}

nlohmann::json RetryPolicy(const RetryOptions& retry) {
  return {{"maxAttempts", retry.max_attempts},
          {"initialBackoff", Seconds(retry.initial_backoff)},
          {"maxBackoff", Seconds(retry.max_backoff)},
          {"backoffMultiplier", retry.backoff_multiplier},
          {"retryableStatusCodes", {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}}};
}

absl::Status CheckSharedMemory(const ClientOptions& options) {
  absl::Status status =
      CheckRange("shared_memory_bytes", options.shared_memory_bytes, 0, kMaxSharedMemoryBytes);
  if (options.shared_memory_bytes > 0 && !absl::StartsWith(options.target, "unix:")) {
    status.Update(InvalidField(
        "shared_memory_bytes",
        absl::StrCat("is ", options.shared_memory_bytes, ", but the target is \"", options.target,
                     "\"; expected 0, or the target \"unix:/path\" of a "
                     "server on this host")));
  }
  return status;
}

// A proxy of the environment is for the world outside, never for this machine.
bool IsLocal(absl::string_view target) {
  return absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:") ||
         absl::StartsWith(target, "127.") || absl::StartsWith(target, "localhost:") ||
         absl::StartsWith(target, "[::1]");
}

}  // namespace

absl::Status CheckOptions(const ClientOptions& options) {
  absl::Status status;
  if (options.target.empty()) {
    status = InvalidField("target", "is empty; expected \"host:port\" or \"unix:/path\"");
  }
  status.Update(CheckRange("default_timeout", options.default_timeout.count(), 0,
                           std::chrono::milliseconds(kMaxTimeout).count()));
  status.Update(CheckRange("max_message_bytes", options.max_message_bytes, 1, kMaxInt));
  status.Update(CheckRetry(options.retry));
  if (options.keepalive_interval.count() != 0) {
    status.Update(CheckRange("keepalive_interval", options.keepalive_interval.count(),
                             kMinKeepaliveInterval.count(), kMaxInt));
  }
  status.Update(CheckRange("keepalive_timeout", options.keepalive_timeout.count(), 1, kMaxInt));
  status.Update(CheckRange("connections", options.connections, 1, kMaxConnections));
  status.Update(CheckSharedMemory(options));
  return status;
}

bool NeedsDispatcher(const ClientOptions& options) {
  return options.use_stream || options.shared_memory_bytes > 0;
}

std::int64_t RetryBufferBytes(const ClientOptions& options) {
  if (options.retry.buffer_bytes > 0) return options.retry.buffer_bytes;
  return std::min<std::int64_t>(2 * options.max_message_bytes, kMaxInt);
}

std::string ServiceConfigJson(const ClientOptions& options, ChannelUse use) {
  nlohmann::json config = nlohmann::json::object();
  const bool by_dispatcher = use == ChannelUse::kCalls && NeedsDispatcher(options);
  if (options.retry.max_attempts > 1 && !by_dispatcher) {
    // The empty name stands for every method.
    config["methodConfig"] = {{{"name", nlohmann::json::array({nlohmann::json::object()})},
                               {"retryPolicy", RetryPolicy(options.retry)}}};
  }
  if (options.watch_health && use == ChannelUse::kCalls) {
    config["loadBalancingConfig"] = {{{"round_robin", nlohmann::json::object()}}};
    config["healthCheckConfig"] = {{"serviceName", std::string(kAttentionServiceName)}};
  }
  return config.dump();
}

grpc::ChannelArguments ChannelArgumentsFor(const ClientOptions& options, ChannelUse use,
                                           int index) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetServiceConfigJSON(ServiceConfigJson(options, use));
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);  // DNS must not override it
  arguments.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE, static_cast<int>(RetryBufferBytes(options)));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kInitialReconnectBackoffMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kInitialReconnectBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectBackoffMs);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, kIdentityCompressionOnly);
  if (options.keepalive_interval.count() != 0) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                     static_cast<int>(options.keepalive_interval.count()));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                     static_cast<int>(options.keepalive_timeout.count()));
    // Without it gRPC stops after two pings, and a long computation sends no data.
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  if (IsLocal(options.target)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetUserAgentPrefix(absl::StrCat(
      options.user_agent, options.user_agent.empty() ? "" : " ", "attend-cpp/", ATTEND_VERSION));
  arguments.SetInt("attend.connection", index);
  return arguments;
}

std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options, ChannelUse use,
                                           int index) {
  return grpc::CreateCustomChannel(options.target, grpc::InsecureChannelCredentials(),
                                   ChannelArgumentsFor(options, use, index));
}

}  // namespace attend::client_internal

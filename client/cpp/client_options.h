// How attend::Client connects and calls.
#ifndef ATTEND_CLIENT_CPP_CLIENT_OPTIONS_H_
#define ATTEND_CLIENT_CPP_CLIENT_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attend {

// When a failed attempt is made again. Attempts share the call's deadline. Only UNAVAILABLE and
// RESOURCE_EXHAUSTED are retried; a server that says how long to wait (grpc-retry-pushback-ms) is
// obeyed instead of the backoff.
struct RetryOptions {
  // Attempts in all, the first included: 1 (no retries) to 5 (gRPC's own bound).
  int max_attempts = 4;
  // Before the n-th retry the client waits a random time of up to
  // min(initial_backoff * backoff_multiplier^(n - 1), max_backoff).
  std::chrono::milliseconds initial_backoff{50};
  std::chrono::milliseconds max_backoff{2000};
  double backoff_multiplier = 2;
  // Bytes of a call's messages kept for another attempt; a call that outgrows it is not retried.
  // 0: twice max_message_bytes. gRPC's own default, 256 KiB, would turn retries off for tensors.
  std::int64_t buffer_bytes = 0;
};

// The longest timeout that can be asked for; there is no need of one that is longer.
inline constexpr std::chrono::hours kMaxTimeout{24 * 365};

struct ClientOptions {
  // "host:port", or "unix:/path" for a Unix socket.
  std::string target = "127.0.0.1:50051";
  // For calls that set no timeout of their own: up to kMaxTimeout. 0: none.
  std::chrono::milliseconds default_timeout{60'000};
  // Largest message to send or receive: 1 to 2^31 - 1 bytes. gRPC's own receive limit is 4 MiB.
  std::int64_t max_message_bytes = std::int64_t{256} << 20;
  RetryOptions retry;
  // Stop sending to a server as soon as it reports NOT_SERVING for the attention service, so that a
  // draining server loses no call. Costs one open stream a connection.
  bool watch_health = true;
  // A connection without an answer to a ping after `keepalive_timeout` is closed. A ping is sent
  // after `keepalive_interval` without data: at least 10 s (servers close connections that ping
  // more often); 0 turns pings off.
  std::chrono::milliseconds keepalive_interval{30'000};
  std::chrono::milliseconds keepalive_timeout{10'000};
  // TCP (or Unix) connections that calls are spread over, 1 to 64. One carries about 1 GB/s of
  // tensors. Clients of one process that have the same options share their connections.
  int connections = 1;
  // Attend and AttendAsync go over one AttendStream for each connection, opened when it is needed
  // and anew after it has broken: small requests cost less. A call with metadata of its own still
  // goes as a call of its own, since a stream has one set of metadata for all its requests.
  bool use_stream = false;
  // Size of a shared-memory object in which tensors and results of 4 KiB and more travel, so that
  // they are not sent through the socket. 0: none. Only for a target "unix:/path" of a server that
  // runs with --shared-memory as the same user; a request that finds no room is sent whole. The
  // memory is taken from the host at the first call.
  std::int64_t shared_memory_bytes = 0;
  // Put in front of "attend-cpp/<version>" in the user agent. May be empty.
  std::string user_agent;
};

// Who goes first when requests compete on the server.
enum class CallPriority : std::uint8_t { kNormal, kHigh, kLow };

struct CallOptions {
  // From now to the answer, retries included: up to kMaxTimeout. Unset:
  // ClientOptions.default_timeout. 0: none.
  std::optional<std::chrono::milliseconds> timeout;
  // For Attend only.
  CallPriority priority = CallPriority::kNormal;
  // Wait, up to the timeout, for a server that is not reachable yet, instead of failing at once
  // with UNAVAILABLE.
  bool wait_for_ready = false;
  // Further metadata, such as {"traceparent", "..."}: names in lower case; values are printable
  // ASCII unless the name ends in "-bin".
  std::vector<std::pair<std::string, std::string>> metadata;
};

}  // namespace attend

#endif  // ATTEND_CLIENT_CPP_CLIENT_OPTIONS_H_

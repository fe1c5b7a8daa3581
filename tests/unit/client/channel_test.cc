#include "client/cpp/channel.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/base/status.h"

namespace attend::client_internal {
namespace {

using nlohmann::json;

std::optional<grpc_arg> Find(const grpc::ChannelArguments& arguments, const std::string& name) {
  const grpc_channel_args args = arguments.c_channel_args();
  for (std::size_t i = 0; i < args.num_args; ++i) {
    if (args.args[i].key == name) return args.args[i];
  }
  return std::nullopt;
}

int IntegerOf(const grpc::ChannelArguments& arguments, const std::string& name) {
  const std::optional<grpc_arg> arg = Find(arguments, name);
  EXPECT_TRUE(arg.has_value()) << name;
  return arg.has_value() ? arg->value.integer : -1;
}

TEST(ServiceConfigTest, LeavesRetriesToTheDispatcherWhereThereIsOne) {
  for (const ClientOptions& options :
       {ClientOptions{.use_stream = true},
        ClientOptions{.target = "unix:/a", .shared_memory_bytes = 1}}) {
    const json config = json::parse(ServiceConfigJson(options, ChannelUse::kCalls));
    EXPECT_FALSE(config.contains("methodConfig")) << config;
    EXPECT_TRUE(config.contains("healthCheckConfig")) << config;
    EXPECT_TRUE(
        json::parse(ServiceConfigJson(options, ChannelUse::kControl)).contains("methodConfig"));
  }
}

TEST(CheckOptionsTest, SharedMemoryIsForUnixSocketsAlone) {
  EXPECT_TRUE(CheckOptions({.target = "unix:/a", .shared_memory_bytes = 1 << 20}).ok());
  for (const ClientOptions& options :
       {ClientOptions{.target = "127.0.0.1:1", .shared_memory_bytes = 1 << 20},
        ClientOptions{.target = "unix:/a", .shared_memory_bytes = -1}}) {
    const absl::Status status = CheckOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetFieldViolation(status)->field, "shared_memory_bytes") << status;
  }
}

TEST(ServiceConfigTest, RetriesAndWatchesHealthByDefault) {
  const json config = json::parse(ServiceConfigJson({}, ChannelUse::kCalls));
  EXPECT_EQ(config, json::parse(R"({
    "methodConfig": [{
      "name": [{}],
      "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.050s", "maxBackoff": "2.000s",
                      "backoffMultiplier": 2.0,
                      "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]}}],
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": "attend.v1.AttentionService"}})"));
}

TEST(ServiceConfigTest, TheControlChannelDoesNotWatch) {
  const json config = json::parse(ServiceConfigJson({}, ChannelUse::kControl));
  EXPECT_FALSE(config.contains("healthCheckConfig"));
  EXPECT_TRUE(config.contains("methodConfig"));
}

TEST(ServiceConfigTest, LeavesOutWhatIsOff) {
  ClientOptions options;
  options.retry.max_attempts = 1;
  options.watch_health = false;
  EXPECT_EQ(ServiceConfigJson(options, ChannelUse::kCalls), "{}");
}

TEST(ChannelArgumentsTest, RaisesLimitsOnBothSidesAndTheRetryBuffer) {
  ClientOptions options;
  const auto arguments = ChannelArgumentsFor(options, ChannelUse::kCalls, 0);
  EXPECT_EQ(IntegerOf(arguments, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH), 256 << 20);
  EXPECT_EQ(IntegerOf(arguments, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH), 256 << 20);
  EXPECT_EQ(IntegerOf(arguments, GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE), 512 << 20);
  EXPECT_EQ(IntegerOf(arguments, GRPC_ARG_KEEPALIVE_TIME_MS), 30'000);
}

TEST(ChannelArgumentsTest, TheRetryBufferFitsAnInt) {
  ClientOptions options;
  options.max_message_bytes = 2147483647;
  EXPECT_EQ(IntegerOf(ChannelArgumentsFor(options, ChannelUse::kCalls, 0),
                      GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE),
            2147483647);
  options.retry.buffer_bytes = 77;
  EXPECT_EQ(IntegerOf(ChannelArgumentsFor(options, ChannelUse::kCalls, 0),
                      GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE),
            77);
}

TEST(ChannelArgumentsTest, ConnectionsDifferInAnArgument) {
  const auto first = ChannelArgumentsFor({}, ChannelUse::kCalls, 0);
  const auto second = ChannelArgumentsFor({}, ChannelUse::kCalls, 1);
  EXPECT_NE(IntegerOf(first, "attend.connection"), IntegerOf(second, "attend.connection"));
}

TEST(ChannelArgumentsTest, NoProxyForThisMachine) {
  for (const char* target :
       {"127.0.0.1:50051", "localhost:1", "[::1]:1", "unix:/run/attend.sock"}) {
    ClientOptions options{.target = target};
    EXPECT_EQ(
        IntegerOf(ChannelArgumentsFor(options, ChannelUse::kCalls, 0), GRPC_ARG_ENABLE_HTTP_PROXY),
        0)
        << target;
  }
  ClientOptions remote{.target = "attend.example:50051"};
  EXPECT_FALSE(Find(ChannelArgumentsFor(remote, ChannelUse::kCalls, 0), GRPC_ARG_ENABLE_HTTP_PROXY)
                   .has_value());
}

TEST(ChannelArgumentsTest, KeepaliveCanBeTurnedOff) {
  ClientOptions options;
  options.keepalive_interval = std::chrono::milliseconds(0);
  EXPECT_FALSE(Find(ChannelArgumentsFor(options, ChannelUse::kCalls, 0), GRPC_ARG_KEEPALIVE_TIME_MS)
                   .has_value());
}

struct BadOption {
  std::string field;
  ClientOptions options;
};

void PrintTo(const BadOption& bad, std::ostream* out) { *out << bad.field; }

class CheckOptionsTest : public ::testing::TestWithParam<BadOption> {};

TEST_P(CheckOptionsTest, NamesTheOptionThatIsWrong) {
  const absl::Status status = CheckOptions(GetParam().options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(GetFieldViolation(status).has_value());
  EXPECT_EQ(GetFieldViolation(status)->field, GetParam().field);
}

INSTANTIATE_TEST_SUITE_P(
    All, CheckOptionsTest,
    ::testing::Values(
        BadOption{"target", {.target = ""}},
        BadOption{"default_timeout", {.default_timeout = std::chrono::milliseconds(-1)}},
        BadOption{"default_timeout", {.default_timeout = std::chrono::milliseconds::max()}},
        BadOption{"max_message_bytes", {.max_message_bytes = 0}},
        BadOption{"max_message_bytes", {.max_message_bytes = std::int64_t{1} << 31}},
        BadOption{"retry.max_attempts", {.retry = {.max_attempts = 0}}},
        BadOption{"retry.max_attempts", {.retry = {.max_attempts = 6}}},
        BadOption{"retry.initial_backoff",
                  {.retry = {.initial_backoff = std::chrono::milliseconds(0)}}},
        BadOption{"retry.max_backoff", {.retry = {.max_backoff = std::chrono::milliseconds(0)}}},
        BadOption{"retry.backoff_multiplier", {.retry = {.backoff_multiplier = 0.5}}},
        BadOption{"retry.buffer_bytes", {.retry = {.buffer_bytes = -1}}},
        BadOption{"keepalive_interval", {.keepalive_interval = std::chrono::milliseconds(9'999)}},
        BadOption{"keepalive_timeout", {.keepalive_timeout = std::chrono::milliseconds(0)}},
        BadOption{"connections", {.connections = 0}},
        BadOption{"connections", {.connections = 65}}));

TEST(CheckDefaultOptionsTest, AreAccepted) { EXPECT_TRUE(CheckOptions({}).ok()); }

}  // namespace
}  // namespace attend::client_internal

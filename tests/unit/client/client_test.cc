#include "client/cpp/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "attend/v1/error.pb.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/client/client_fixture.h"
#include "tests/unit/client/fake_server.h"

namespace attend {
namespace {

using std::chrono::milliseconds;
using testing::Connect;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Step;

TEST(ClientTest, WorksOverAUnixSocket) {
  const testing::TempFolder folder;
  {
    FakeServer server("unix:" + folder.PathOf("socket"));
    EXPECT_TRUE(Connect(server)->Attend(Step().args).ok());
  }
}

TEST(ClientTest, RetriesWhenUnavailable) {
  FakeServer server;
  server.service().FailNext(1, {grpc::StatusCode::UNAVAILABLE, "draining"});
  const auto client = Connect(server);
  const absl::StatusOr<AttendResult> result = client->Attend(Step().args);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server.service().attempts(), 2);
}

TEST(ClientTest, RetriesARequestThatIsLargerThanGrpcsOwnRetryBuffer) {
  FakeServer server;
  server.service().FailNext(2, {grpc::StatusCode::UNAVAILABLE, "draining"});
  server.service().AnswerZeros(1);
  const auto client = Connect(server);
  const std::vector<float> values(1 << 20);  // 4 MiB
  AttentionArgs args;
  args.query = FloatTensorView(values, {1, 1, 1 << 10, 1 << 10});
  args.key = args.value = args.query;
  const absl::StatusOr<AttendResult> result = client->Attend(args);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server.service().attempts(), 3);
}

TEST(ClientTest, ObeysAServerThatForbidsRetries) {
  FakeServer server;
  v1::Error error;
  v1::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(3);
  error.add_details()->set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  error.mutable_details(0)->set_value(info.SerializeAsString());
  server.service().FailNext(
      5, {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", error.SerializeAsString()},
      {{"grpc-retry-pushback-ms", "-1"}});
  const auto client = Connect(server);
  const absl::Status status = client->Attend(Step().args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetRetryDelay(status), milliseconds(3000));
  EXPECT_EQ(server.service().attempts(), 1);
}

TEST(ClientTest, AcceptsAnAnswerPast4MiB) {
  FakeServer server;
  server.service().AnswerZeros(3 << 20);
  const auto client = Connect(server);
  const absl::StatusOr<AttendResult> result = client->Attend(Step().args);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output.data.size(), 12u << 20);
}

TEST(ClientTest, SaysThatItsOwnLimitIsTooLowForAnAnswer) {
  FakeServer server;
  server.service().AnswerZeros(1 << 20);
  const auto client = Connect(server, {.max_message_bytes = 1 << 20});
  const absl::Status status = client->Attend(Step().args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("larger than this client accepts"));
}

TEST(ClientTest, SaysThatTheServersLimitIsTooLowForARequest) {
  FakeServer server("127.0.0.1:0", 1000);
  const auto client = Connect(server);
  const std::vector<float> values(1024);
  AttentionArgs args;
  args.query = args.key = args.value = FloatTensorView(values, {1, 1, 32, 32});
  const absl::Status status = client->Attend(args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("this is the server's limit"));
}

TEST(ClientTest, TimesOut) {
  FakeServer server;
  server.service().HoldCalls();
  const auto client = Connect(server);
  const absl::Status status = client->Attend(Step().args, {.timeout = milliseconds(50)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientTest, ReportsAnUnreachableServer) {
  std::string target;
  {
    FakeServer gone;
    target = gone.target();
  }
  ClientOptions options{.target = target};
  options.retry.max_attempts = 1;
  const auto client = Client::Create(options);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*client)->Attend(Step().args).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*client)->CheckHealth().status().code(), absl::StatusCode::kUnavailable);
}

TEST(ClientTest, SendsMetadataPriorityAndItsName) {
  FakeServer server;
  const auto client = Connect(server, {.user_agent = "tester/1"});
  CallOptions call_options{.priority = CallPriority::kLow};
  call_options.metadata = {{"traceparent", "00-ab-cd-01"}};
  ASSERT_TRUE(client->Attend(Step().args, call_options).ok());
  EXPECT_EQ(server.service().metadata("traceparent"), "00-ab-cd-01");
  EXPECT_THAT(server.service().metadata("user-agent"), HasSubstr("tester/1 attend-cpp/"));
  EXPECT_EQ(server.service().requests().back().priority(), v1::PRIORITY_LOW);
}

TEST(ClientTest, RefusesMetadataThatIsNotLegal) {
  FakeServer server;
  const auto client = Connect(server);
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"Upper", "x"}, {"", "x"}, {"two words", "x"}, {"name", "line\nbreak"}}) {
    CallOptions call_options;
    call_options.metadata = {{name, value}};
    EXPECT_EQ(client->Attend(Step().args, call_options).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_EQ(server.service().attempts(), 0);
}

TEST(ClientTest, ReadsServerInfo) {
  FakeServer server;
  const absl::StatusOr<ServerInfo> info = Connect(server)->GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version, "9.9.9");
  EXPECT_THAT(info->dtypes, ElementsAre(DType::kFloat32, DType::kBFloat16));
  EXPECT_EQ(info->compute_threads, 3);
  EXPECT_EQ(info->limits.max_head_dim, 1024);
}

TEST(ClientHealthTest, ChecksAServiceByName) {
  FakeServer server;
  const auto client = Connect(server);
  EXPECT_EQ(*client->CheckHealth(), ServingStatus::kServing);
  EXPECT_EQ(*client->CheckHealth(kAttentionServiceName), ServingStatus::kServing);
  EXPECT_EQ(client->CheckHealth("no.such.Service").status().code(), absl::StatusCode::kNotFound);
}

TEST(ClientHealthTest, WatchesChanges) {
  FakeServer server;
  const auto client = Connect(server);
  std::vector<ServingStatus> seen;
  const absl::Status status = client->WatchHealth("", [&](ServingStatus now) {
    seen.push_back(now);
    server.SetServing(seen.size() % 2 == 0);
    return seen.size() < 3;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(seen, ElementsAre(ServingStatus::kServing, ServingStatus::kNotServing,
                                ServingStatus::kServing));
}

TEST(ClientHealthTest, WatchOfAnUnknownServiceSaysSo) {
  FakeServer server;
  const auto client = Connect(server);
  const absl::Status status = client->WatchHealth("no.such.Service", [](ServingStatus now) {
    EXPECT_EQ(now, ServingStatus::kServiceUnknown);
    return false;
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClientHealthTest, WatchEndsAtItsTimeout) {
  FakeServer server;
  const auto client = Connect(server);
  const auto keep_on = [](ServingStatus) { return true; };
  EXPECT_EQ(client->WatchHealth("", keep_on, {.timeout = milliseconds(50)}).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientHealthTest, SendsNothingToAServerThatIsNotServing) {
  FakeServer server;
  server.SetServing(false);
  ClientOptions options;
  options.retry.max_attempts = 1;
  const auto client = Connect(server, options);
  EXPECT_EQ(client->Attend(Step().args).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server.service().attempts(), 0);
  // What asks about the server still gets through.
  EXPECT_EQ(*client->CheckHealth(), ServingStatus::kNotServing);
  EXPECT_TRUE(client->GetServerInfo().ok());
  server.SetServing(true);
  EXPECT_TRUE(client->Attend(Step().args, {.wait_for_ready = true}).ok());
}

TEST(ClientHealthTest, SendsAnywayWhereHealthIsNotWatched) {
  FakeServer server;
  server.SetServing(false);
  const auto client = Connect(server, {.watch_health = false});
  EXPECT_TRUE(client->Attend(Step().args).ok());
}

}  // namespace
}  // namespace attend

// Each status code of the API, from the real server, and that it serves on afterwards.
#include <functional>
#include <memory>
#include <signal.h>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"

namespace attend::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kInFlight[] = "attend_in_flight_requests";
// A call is in flight before it is admitted; once its batch is formed, it holds its place.
constexpr char kBatches[] = "attend_batch_requests_count";

std::string Dropped(const std::string& reason, const std::string& priority = "normal") {
  return "attend_dropped_total{priority=\"" + priority + "\",reason=\"" + reason + "\"}";
}

std::string Ended(const std::string& code) {
  return "attend_requests_total{code=\"" + code + "\",method=\"Attend\"}";
}

using StatusCodeTest = ServerTest;

TEST_F(StatusCodeTest, FullQueueIsResourceExhaustedWithRetryAdvice) {  // B37
  StartServer({"--max-queued-requests", "1"});
  RunningCall slow(channel_, SlowRequest());
  ASSERT_TRUE(WaitForMetric(kBatches, 1));

  const CallResult refused = Attend(*stub_, RandomRequest());
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(refused.retry_delay_seconds.has_value());
  EXPECT_GT(*refused.retry_delay_seconds, 0);
  ASSERT_TRUE(refused.retry_pushback_ms.has_value());
  EXPECT_GT(std::stoi(*refused.retry_pushback_ms), 0);
  EXPECT_EQ(server_->Metric(Dropped("queue_full")), 1);

  slow.Cancel();
  EXPECT_EQ(slow.Wait().status.error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(WaitForMetric(kInFlight, 0));
  ExpectServes();
}

TEST_F(StatusCodeTest, FullQueueGivesThePlaceOfALowPriorityToAHighOne) {  // B39
  // Room for one that runs and one that waits.
  StartServer(
      {"--max-queued-requests", "2", "--max-running-bytes", "1KiB", "--max-priority-wait", "1h"});
  RunningCall slow(channel_, SlowRequest());
  ASSERT_TRUE(WaitForMetric(kBatches, 1));
  v1::AttendRequest low = SlowRequest();
  low.set_priority(v1::PRIORITY_LOW);
  RunningCall waiting(channel_, low);
  ASSERT_TRUE(WaitForMetric("attend_queue_depth{priority=\"low\"}", 1));

  v1::AttendRequest high = RandomRequest();
  high.set_priority(v1::PRIORITY_HIGH);
  const CallResult served = Attend(*stub_, high);
  EXPECT_TRUE(served.status.ok()) << served.status.error_message();
  const CallResult displaced = waiting.Wait();
  EXPECT_EQ(displaced.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(displaced.status.error_message(), HasSubstr("more urgent"));
  ASSERT_TRUE(displaced.retry_delay_seconds.has_value());
  EXPECT_GT(*displaced.retry_delay_seconds, 0);
  ASSERT_TRUE(displaced.retry_pushback_ms.has_value());
  EXPECT_GT(std::stoi(*displaced.retry_pushback_ms), 0);
  EXPECT_EQ(server_->Metric(Dropped("displaced", "low")), 1);
  EXPECT_EQ(server_->Metric(Dropped("queue_full")), 0);

  slow.Cancel();
  slow.Wait();
  ASSERT_TRUE(WaitForMetric(kInFlight, 0));
  ExpectServes();
}

TEST_F(StatusCodeTest, QueueIsBoundedInBytesToo) {
  const v1::AttendRequest slow_request = SlowRequest();
  // Enough for one with its answer and its working memory (3 times its size), not for two.
  const std::string bytes = std::to_string(5 * slow_request.ByteSizeLong());
  StartServer({"--max-queued-bytes", bytes, "--max-message-bytes", bytes});
  RunningCall slow(channel_, slow_request);
  ASSERT_TRUE(WaitForMetric(kBatches, 1));
  EXPECT_EQ(Attend(*stub_, slow_request).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  slow.Cancel();
  slow.Wait();
  ASSERT_TRUE(WaitForMetric(kInFlight, 0));
  ExpectServes();
}

TEST_F(StatusCodeTest, WhatCanNeverFitTheQueueIsInvalid) {
  const v1::AttendRequest request = RandomRequest({.kv_len = 100});
  // Room for the message, and none for its answer.
  const std::string bytes = std::to_string(request.ByteSizeLong());
  StartServer({"--max-queued-bytes", bytes, "--max-message-bytes", bytes});
  const CallResult refused = Attend(*stub_, request);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
      << refused.status.error_message();
  EXPECT_THAT(refused.status.error_message(), HasSubstr(bytes));
}

TEST_F(StatusCodeTest, MessagesPastTheLimitAreResourceExhaustedAndSayTheLimit) {  // B1, B4
  const v1::AttendRequest request = RandomRequest({.kv_len = 200});
  const auto size = static_cast<std::int64_t>(request.ByteSizeLong());
  for (const std::int64_t limit : {size - 1, size, size + 1}) {
    StartServer({"--max-message-bytes", std::to_string(limit)});
    const CallResult result = Attend(*stub_, request);
    if (limit < size) {
      EXPECT_EQ(result.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_THAT(result.status.error_message(), HasSubstr(std::to_string(limit)));
    } else {
      EXPECT_TRUE(result.status.ok()) << result.status.error_message();
    }
    ExpectServes();
    TearDown();
  }
}

TEST_F(StatusCodeTest, ResponsesPastTheLimitAreInvalidAndNameTheAsk) {  // B1
  StartServer({"--max-message-bytes", "64KiB"});
  v1::AttendRequest request =
      RandomRequest({.batch = 1, .query_len = 100, .kv_len = 100, .head_dim = 1, .value_dim = 1});
  request.mutable_output()->set_weights(true);  // 4 * 100 * 100 * 4 bytes
  CallResult result = Attend(*stub_, request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(result.fields, ElementsAre("output.weights"));
  EXPECT_THAT(result.status.error_message(), HasSubstr("65536"));

  // A small request whose output alone is large: value is shared by all queries.
  request = RandomRequest({.batch = 1,
                           .query_len = 1000,
                           .kv_len = 1,
                           .head_dim = 1,
                           .value_dim = 1024,
                           .dtype = DType::kFloat16});
  result = Attend(*stub_, request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ExpectServes();
}

TEST_F(StatusCodeTest, CallDeadlineIsDeadlineExceededAndStopsTheComputation) {  // B25
  StartServer();
  RunningCall slow(channel_, SlowRequest(), 0.3);
  EXPECT_EQ(slow.Wait().status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
  ExpectServes();
}

TEST_F(StatusCodeTest, RequestTimeoutIsDeadlineExceededByTheServer) {
  StartServer();
  v1::AttendRequest request = SlowRequest();
  request.mutable_timeout()->set_nanos(200'000'000);
  RunningCall slow(channel_, request);  // without a deadline of the call
  EXPECT_EQ(slow.Wait().status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(WaitForMetric(Ended("DEADLINE_EXCEEDED"), 1));
  EXPECT_TRUE(WaitForMetric(Dropped("deadline"), 1));
  ExpectServes();
}

TEST_F(StatusCodeTest, DeadlineThatHasPassedIsNeverComputed) {
  StartServer();
  v1::AttendRequest request = SlowRequest();
  request.mutable_timeout()->set_nanos(1);
  const CallResult result = Attend(*stub_, request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(server_->Metric("attend_compute_seconds_count"), 0);
  ExpectServes();
}

TEST_F(StatusCodeTest, CancelledCallsStopComputing) {  // B27
  StartServer();
  RunningCall slow(channel_, SlowRequest());
  ASSERT_TRUE(WaitForMetric(kInFlight, 1));
  slow.Cancel();
  EXPECT_EQ(slow.Wait().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
  EXPECT_TRUE(WaitForMetric(Dropped("cancelled"), 1));
  EXPECT_TRUE(WaitForMetric("attend_queue_depth{priority=\"normal\"}", 0));
  ExpectServes();
}

TEST_F(StatusCodeTest, ClientThatIsKilledMidCallIsForgotten) {
  StartServer();
  ChildProcess caller({ATTEND_SLOW_CALLER, server_->tcp_target()});
  ASSERT_TRUE(WaitForMetric(kInFlight, 1)) << caller.Stderr();
  caller.Signal(SIGKILL);
  EXPECT_EQ(caller.WaitForExit(), 128 + SIGKILL);
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
  EXPECT_EQ(server_->Metric(Dropped("cancelled")), 1);
  ExpectServes();
}

TEST_F(StatusCodeTest, CallsThatOutlastTheDrainAreUnavailable) {  // B48
  StartServer({"--drain-grace", "100ms", "--drain-timeout", "1s"});
  RunningCall slow(channel_, SlowRequest());
  ASSERT_TRUE(WaitForMetric(kInFlight, 1));
  server_->process().Signal(SIGTERM);
  EXPECT_EQ(slow.Wait().status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server_->process().WaitForExit(), 0) << server_->process().Stderr();
}

TEST_F(StatusCodeTest, EstimatesAreUnimplemented) {
  StartServer();
  grpc::ClientContext context;
  v1::Cost cost;
  EXPECT_EQ(stub_->Estimate(&context, RandomRequest(), &cost).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  ExpectServes();
}

TEST_F(StatusCodeTest, SharedMemoryIsUnimplementedByName) {  // B21
  StartServer();
  v1::AttendRequest request = RandomRequest();
  request.mutable_key()->mutable_shared_memory()->set_handle("any");
  CallResult result = Attend(*stub_, request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(result.status.error_message(), HasSubstr("key.shared_memory"));

  request = RandomRequest();
  request.mutable_output()->mutable_output_target()->set_handle("any");
  result = Attend(*stub_, request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(result.status.error_message(), HasSubstr("output.output_target"));
  ExpectServes();
}

TEST_F(StatusCodeTest, FieldsOfANewerApiAreUnimplementedRatherThanIgnored) {
  StartServer();
  v1::AttendRequest request = RandomRequest();
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(900, 1);
  CallResult result = Attend(*stub_, request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(result.status.error_message(), HasSubstr("900"));

  request = RandomRequest();
  v1::AttentionOptions& options = *request.mutable_options();
  options.GetReflection()->MutableUnknownFields(&options)->AddVarint(901, 1);
  result = Attend(*stub_, request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(result.status.error_message(), HasSubstr("901"));
  ExpectServes();
}

TEST_F(StatusCodeTest, UnknownPriorityMetadataIsInvalid) {
  StartServer();
  grpc::ClientContext context;
  context.AddMetadata("x-attend-priority", "urgent");
  const CallResult result = Attend(*stub_, RandomRequest(), context);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(result.fields, ElementsAre("x-attend-priority"));
  for (const char* priority : {"high", "normal", "low"}) {
    grpc::ClientContext valid;
    valid.AddMetadata("x-attend-priority", priority);
    EXPECT_TRUE(Attend(*stub_, RandomRequest(), valid).status.ok());
  }
}

// An option that the server does not list must be refused by its name, and one that it lists must
// be computed.
TEST_F(StatusCodeTest, EachOptionIsComputedOrRefusedByName) {
  StartServer();
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
  const std::vector<std::pair<std::string, std::function<void(v1::AttentionOptions&)>>> options = {
      {"softcap", [](auto& o) { o.set_softcap(2); }},
      {"window_left", [](auto& o) { o.set_window_left(1); }},
      {"window_right", [](auto& o) { o.set_window_right(0); }},
      {"alibi_slopes", [](auto& o) { *o.mutable_alibi_slopes() = RandomTensor({4}, 1); }},
      {"sinks", [](auto& o) { *o.mutable_sinks() = RandomTensor({4}, 1); }},
      {"block_mask", [](auto& o) {
         o.mutable_block_mask()->set_query_block_size(64);
         o.mutable_block_mask()->set_key_block_size(64);
         *o.mutable_block_mask()->mutable_blocks() = BoolTensor({1, 2}, std::vector<int>{0, 1});
       }}};
  for (const auto& [name, use] : options) {
    v1::AttendRequest request = RandomRequest({.kv_len = 70});
    use(*request.mutable_options());
    const CallResult result = Attend(*stub_, request);
    const bool offered =
        std::find(info.options().begin(), info.options().end(), name) != info.options().end();
    if (offered) {
      ASSERT_TRUE(result.status.ok()) << result.status.error_message();
      ExpectMatchesReference(request, result.response);
    } else {
      EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << name;
      EXPECT_THAT(result.status.error_message(), HasSubstr("options." + name));
    }
  }
}

}  // namespace
}  // namespace attend::testing

// What the client promises whether its requests go as calls of their own or over a stream.
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "attend/v1/error.pb.h"
#include "client/cpp/client.h"
#include "tests/unit/client/client_fixture.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/waiter.h"

namespace attend {
namespace {

using std::chrono::milliseconds;
using ::testing::FloatNear;
using ::testing::Pointwise;
using testing::Step;

constexpr float kFourDecimals = 0.5e-4f;

class ClientBothWaysTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Client> Connect(ClientOptions options = {}) {
    options.use_stream = GetParam();
    return testing::Connect(server_, std::move(options));
  }
  // Of `count` connections that were used.
  void ExpectStreams(int count) { EXPECT_EQ(server_.service().streams(), GetParam() ? count : 0); }

  FakeServer server_;
};

std::string WayName(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Stream" : "Calls";
}
INSTANTIATE_TEST_SUITE_P(All, ClientBothWaysTest, ::testing::Bool(), WayName);

TEST_P(ClientBothWaysTest, ComputesTheWorkedStep) {
  const auto client = Connect();
  const absl::StatusOr<AttendResult> result = client->Attend(Step().args);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->weights.has_value());
  EXPECT_THAT(result->weights->ToFloats(),
              Pointwise(FloatNear(kFourDecimals), {0.2483f, 0.2483f, 0.5035f}));
  EXPECT_EQ(result->stats.server, "fake");
  EXPECT_EQ(result->stats.compute, milliseconds(2));
  ExpectStreams(1);
}

TEST_P(ClientBothWaysTest, CallsBackWithTheResult) {
  const auto client = Connect();
  Waiter waiter;
  {
    const Step step;  // read before AttendAsync returns
    client->AttendAsync(step.args, waiter.callback());
  }
  ASSERT_TRUE(waiter.Wait().ok()) << waiter.Wait().status();
  EXPECT_THAT(waiter.Wait()->output.ToFloats(),
              Pointwise(FloatNear(kFourDecimals), {0.7517f, 0.7517f}));
}

TEST_P(ClientBothWaysTest, CallsBackAtOnceWhereNoRequestCanBeMade) {
  const auto client = Connect();
  Waiter waiter;
  client->AttendAsync({}, waiter.callback());
  ASSERT_TRUE(waiter.done());
  EXPECT_EQ(waiter.Wait().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(ClientBothWaysTest, RefusesATimeoutThatIsNone) {
  const auto client = Connect();
  for (const milliseconds timeout : {milliseconds(-1), milliseconds::max()}) {
    EXPECT_EQ(client->Attend(Step().args, {.timeout = timeout}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(client->GetServerInfo({.timeout = timeout}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(ClientBothWaysTest, CancelEndsACall) {
  server_.service().HoldCalls();
  const auto client = Connect();
  Waiter waiter;
  const CallHandle handle = client->AttendAsync(Step().args, waiter.callback());
  server_.service().WaitUntilHeld(1);
  EXPECT_FALSE(waiter.done());
  handle.Cancel();
  EXPECT_EQ(waiter.Wait().status().code(), absl::StatusCode::kCancelled);
}

TEST_P(ClientBothWaysTest, CancelOfAFinishedCallDoesNothing) {
  auto client = Connect();
  Waiter waiter;
  const CallHandle handle = client->AttendAsync(Step().args, waiter.callback());
  EXPECT_TRUE(waiter.Wait().ok());
  handle.Cancel();
  client.reset();
  handle.Cancel();
  CallHandle().Cancel();
}

TEST_P(ClientBothWaysTest, DestructionDoesNotHangOnACallbackThatThrew) {
  auto client = Connect();
  absl::Notification called;
  client->AttendAsync(Step().args, [&called](const absl::StatusOr<AttendResult>&) {
    called.Notify();
    throw std::runtime_error("a callback must not throw");
  });
  called.WaitForNotification();
  client.reset();
}

TEST_P(ClientBothWaysTest, DestructionCancelsCallsAndWaitsForTheirCallbacks) {
  server_.service().HoldCalls();
  auto client = Connect();
  Waiter first;
  Waiter second;
  client->AttendAsync(Step().args, first.callback());
  client->AttendAsync(Step().args, second.callback());
  server_.service().WaitUntilHeld(2);
  client.reset();
  ASSERT_TRUE(first.done());
  ASSERT_TRUE(second.done());
  EXPECT_EQ(first.Wait().status().code(), absl::StatusCode::kCancelled);
}

TEST_P(ClientBothWaysTest, GivesUpAfterTheLastAttempt) {
  server_.service().FailNext(100, {grpc::StatusCode::UNAVAILABLE, "draining"});
  ClientOptions options;
  options.retry.max_attempts = 3;
  options.retry.initial_backoff = milliseconds(1);
  const absl::Status status = Connect(options)->Attend(Step().args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "draining");
  EXPECT_EQ(server_.service().attempts(), 3);
}

TEST_P(ClientBothWaysTest, DoesNotRetryWhatCannotSucceed) {
  const auto client = Connect();
  Step step;
  step.args.options.scale = std::numeric_limits<float>::infinity();
  const absl::Status status = client->Attend(step.args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(GetFieldViolations(status).size(), 1u);
  EXPECT_EQ(GetFieldViolations(status)[0].field, "options.scale");
  EXPECT_EQ(server_.service().attempts(), 1);
  EXPECT_TRUE(client->Attend(Step().args).ok());  // one error harms no other request
  ExpectStreams(1);
}

// The server says when in its trailers to a call, and in the error's details on a stream.
TEST_P(ClientBothWaysTest, RetriesWhenTheServerSaysWhen) {
  v1::RetryInfo info;
  info.mutable_retry_delay()->set_nanos(1'000'000);
  v1::Error error;
  error.set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
  error.add_details()->set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  error.mutable_details(0)->set_value(info.SerializeAsString());
  server_.service().FailNext(
      2, {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", error.SerializeAsString()},
      {{"grpc-retry-pushback-ms", "1"}});
  ClientOptions options;  // a backoff that would outlast the timeout
  options.retry.initial_backoff = options.retry.max_backoff = milliseconds(3'600'000);
  const absl::StatusOr<AttendResult> result = Connect(options)->Attend(Step().args);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server_.service().attempts(), 3);
}

TEST_P(ClientBothWaysTest, SpreadsCallsOverItsConnections) {
  const auto client = Connect({.connections = 3});
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(client->Attend(Step().args).ok());
  EXPECT_EQ(server_.service().peers(), 3);
  ExpectStreams(3);
}

}  // namespace
}  // namespace attend

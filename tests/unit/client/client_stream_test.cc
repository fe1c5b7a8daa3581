// The client over AttendStream: by an option, behind the same calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "client/cpp/client.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/client/client_fixture.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/waiter.h"

namespace attend {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::Step;

std::unique_ptr<Client> Connect(const FakeServer& server, ClientOptions options = {}) {
  options.use_stream = true;
  return testing::Connect(server, std::move(options));
}

TEST(ClientStreamTest, CallsShareOneStream) {
  FakeServer server;
  const auto client = Connect(server);
  std::vector<Waiter> waiters(20);
  for (Waiter& waiter : waiters) client->AttendAsync(Step().args, waiter.callback());
  for (Waiter& waiter : waiters) {
    ASSERT_TRUE(waiter.Wait().ok()) << waiter.Wait().status();
    EXPECT_NEAR(waiter.Wait()->output.ToFloats()[0], 0.7517f, 0.5e-4f);
  }
  EXPECT_TRUE(client->Attend(Step().args).ok());
  EXPECT_EQ(server.service().attempts(), 21);
  EXPECT_EQ(server.service().streams(), 1);
}

TEST(ClientStreamTest, AThousandCallsAreInFlightAndDestructionCancelsThem) {
  FakeServer server;
  server.service().HoldCalls();
  auto client = Connect(server);
  std::vector<Waiter> waiters(1000);
  for (Waiter& waiter : waiters) client->AttendAsync(Step().args, waiter.callback());
  server.service().WaitUntilHeld(1000);
  client.reset();
  for (Waiter& waiter : waiters) {
    ASSERT_TRUE(waiter.done());
    EXPECT_EQ(waiter.Wait().status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(server.service().streams(), 1);
}

TEST(ClientStreamTest, CancelEndsACallAndTheServersWork) {
  FakeServer server;
  server.service().HoldCalls();
  const auto client = Connect(server);
  Waiter waiter;
  const CallHandle handle = client->AttendAsync(Step().args, waiter.callback());
  server.service().WaitUntilHeld(1);
  EXPECT_FALSE(waiter.done());
  handle.Cancel();
  handle.Cancel();
  EXPECT_EQ(waiter.Wait().status().code(), absl::StatusCode::kCancelled);
  server.service().WaitUntilCancelled(1);
  server.service().StopHolding();
  EXPECT_TRUE(client->Attend(Step().args).ok());
  EXPECT_EQ(server.service().streams(), 1);
}

TEST(ClientStreamTest, TimeoutOfOneCallEndsItAlone) {
  FakeServer server;
  server.service().HoldCalls();
  const auto client = Connect(server);
  const absl::Status status = client->Attend(Step().args, {.timeout = milliseconds(50)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  server.service().WaitUntilCancelled(1);
  const v1::AttendRequest request = server.service().requests().back();
  ASSERT_TRUE(request.has_timeout());
  EXPECT_EQ(request.timeout().seconds(), 0);
  EXPECT_GT(request.timeout().nanos(), 0);
  EXPECT_LE(request.timeout().nanos(), 50'000'000);
  server.service().StopHolding();
  EXPECT_TRUE(client->Attend(Step().args, {.timeout = milliseconds(0)}).ok());
  EXPECT_FALSE(server.service().requests().back().has_timeout());
  EXPECT_EQ(server.service().streams(), 1);
}

TEST(ClientStreamTest, BrokenStreamIsOpenedAnewForWhatWasInFlight) {
  FakeServer server;
  server.service().HoldCalls();
  ClientOptions options;
  options.retry.initial_backoff = milliseconds(1);
  const auto client = Connect(server, options);
  std::vector<Waiter> waiters(30);
  for (Waiter& waiter : waiters) client->AttendAsync(Step().args, waiter.callback());
  server.service().WaitUntilHeld(30);
  server.service().StopHolding();
  server.service().EndStreams({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  for (Waiter& waiter : waiters) EXPECT_TRUE(waiter.Wait().ok()) << waiter.Wait().status();
  EXPECT_EQ(server.service().streams(), 2);
  EXPECT_EQ(server.service().attempts(), 60);
}

TEST(ClientStreamTest, EndsWithoutAnAnswerAreErrors) {
  for (const auto& [end, code] : std::vector<std::pair<grpc::Status, absl::StatusCode>>{
           {{grpc::StatusCode::UNAVAILABLE, "gone"}, absl::StatusCode::kUnavailable},
           {grpc::Status::OK, absl::StatusCode::kUnavailable},
           {{grpc::StatusCode::INVALID_ARGUMENT, "no"}, absl::StatusCode::kInvalidArgument},
           {{grpc::StatusCode::INTERNAL, "broken"}, absl::StatusCode::kInternal}}) {
    FakeServer server;
    server.service().HoldCalls();
    ClientOptions options;
    options.retry.max_attempts = 1;
    const auto client = Connect(server, options);
    Waiter waiter;
    client->AttendAsync(Step().args, waiter.callback());
    server.service().WaitUntilHeld(1);
    server.service().EndStreams(end);
    EXPECT_EQ(waiter.Wait().status().code(), code) << waiter.Wait().status();
  }
}

TEST(ClientStreamTest, SaysThatTheServerOffersNoStreams) {
  FakeServer server;
  server.service().RefuseStreams({grpc::StatusCode::UNIMPLEMENTED, "no such method"});
  const absl::Status status = Connect(server)->Attend(Step().args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("leave use_stream off"));
  EXPECT_EQ(server.service().streams(), 1);
}

TEST(ClientStreamTest, CallsWithMetadataGoByThemselves) {
  FakeServer server;
  server.service().FailNext(1, {grpc::StatusCode::UNAVAILABLE, "draining"},
                            {{"grpc-retry-pushback-ms", "1"}});
  ClientOptions options;
  options.retry.initial_backoff = options.retry.max_backoff = milliseconds(3'600'000);
  const auto client = Connect(server, options);
  CallOptions call_options;
  call_options.metadata = {{"traceparent", "00-ab-cd-01"}};
  const absl::StatusOr<AttendResult> result = client->Attend(Step().args, call_options);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server.service().metadata("traceparent"), "00-ab-cd-01");
  EXPECT_EQ(server.service().attempts(), 2);
  EXPECT_EQ(server.service().streams(), 0);
}

TEST(ClientStreamTest, ObeysAServerThatForbidsRetries) {
  FakeServer server;
  server.service().FailNext(5, {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"},
                            {{"grpc-retry-pushback-ms", "-1"}});
  CallOptions call_options;
  call_options.metadata = {{"traceparent", "00-ab-cd-01"}};
  EXPECT_EQ(Connect(server)->Attend(Step().args, call_options).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server.service().attempts(), 1);
}

TEST(ClientStreamTest, RequestThatIsTooLargeForTheServerHarmsNoOther) {
  FakeServer server("127.0.0.1:0", 1000);
  server.service().HoldCalls();
  ClientOptions options;
  options.retry.max_attempts = 2;
  options.retry.initial_backoff = milliseconds(1);
  const auto client = Connect(server, options);
  Waiter small;
  client->AttendAsync(Step().args, small.callback());
  server.service().WaitUntilHeld(1);
  server.service().StopHolding();
  const std::vector<float> values(1024);
  AttentionArgs args;
  args.query = args.key = args.value = FloatTensorView(values, {1, 1, 32, 32});
  Waiter large;
  client->AttendAsync(args, large.callback());
  EXPECT_EQ(large.Wait().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(large.Wait().status().message()),
              HasSubstr("this is the server's limit"));
  // The second attempt of the large one may break the stream of the small one's second.
  EXPECT_TRUE(small.Wait().ok() || absl::IsUnavailable(small.Wait().status()));
  EXPECT_TRUE(client->Attend(Step().args).ok());
}

TEST(ClientStreamTest, AnswerPastItsLimitIsRefusedBeforeItIsAskedFor) {
  FakeServer server;
  const auto client = Connect(server, {.max_message_bytes = 20'000});
  const std::vector<float> values(1000);
  AttentionArgs args;
  args.query = FloatTensorView(values, {1, 1, 1000, 1});
  args.key = FloatTensorView(std::span(values).first(100), {1, 1, 100, 1});
  args.value = args.key;
  EXPECT_TRUE(client->Attend(args).ok());
  args.output.weights = true;
  const absl::Status status = client->Attend(args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the answer is larger"));
  EXPECT_EQ(server.service().attempts(), 1);
}

TEST(ClientStreamTest, WaitsForAServerThatIsNotThereYet) {
  const testing::TempFolder folder;
  {
    const std::string target = "unix:" + folder.PathOf("socket");
    ClientOptions options{.target = target, .use_stream = true};
    options.retry.max_attempts = 1;
    options.retry.initial_backoff = milliseconds(1);
    options.retry.max_backoff = milliseconds(20);
    const auto client = *Client::Create(options);
    EXPECT_EQ(client->Attend(Step().args).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(client->Attend(Step().args, {.timeout = milliseconds(50), .wait_for_ready = true})
                  .status()
                  .code(),
              absl::StatusCode::kDeadlineExceeded);
    Waiter waiter;
    client->AttendAsync(Step().args, waiter.callback(), {.wait_for_ready = true});
    FakeServer server(target);
    EXPECT_TRUE(waiter.Wait().ok()) << waiter.Wait().status();
  }
}

// Calls that are answered, cancelled and timed out at about the same moment, on a stream that
// breaks again and again.
TEST(ClientStreamTest, EveryCallEndsOnceWhateverHappensAtTheSameTime) {
  FakeServer server;
  ClientOptions options{.connections = 2};
  options.retry.initial_backoff = milliseconds(1);
  auto client = Connect(server, options);
  constexpr int kThreads = 4;
  constexpr int kCalls = 250;
  absl::BlockingCounter ended(kThreads * kCalls);
  std::vector<std::thread> callers;
  for (int t = 0; t < kThreads; ++t) {
    callers.emplace_back([&, t] {
      const Step step;
      for (int i = 0; i < kCalls; ++i) {
        CallOptions call_options;
        if (i % 3 == 1) call_options.timeout = milliseconds(1 + i % 5);
        const CallHandle handle = client->AttendAsync(
            step.args,
            [&ended](const absl::StatusOr<AttendResult>& result) {
              EXPECT_TRUE(result.ok() || absl::IsCancelled(result.status()) ||
                          absl::IsDeadlineExceeded(result.status()) ||
                          absl::IsUnavailable(result.status()))
                  << result.status();
              ended.DecrementCount();
            },
            call_options);
        if (i % 3 == 2) handle.Cancel();
        if (t == 0 && i % 25 == 0) {
          server.service().EndStreams({grpc::StatusCode::UNAVAILABLE, "again"});
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  client.reset();
  ended.Wait();
}

}  // namespace
}  // namespace attend

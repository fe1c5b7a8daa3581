// AttendStream of the real server.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <signal.h>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/calls.h"
#include "tests/support/child_process.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"

namespace attend::testing {
namespace {

using ::testing::AnyOf;

constexpr char kInFlight[] = "attend_in_flight_requests";
constexpr char kOpenStreams[] = "attend_open_streams";

using Stream = grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>;

bool Send(Stream& stream, std::uint64_t id, const v1::AttendRequest& request) {
  v1::AttendStreamRequest message;
  message.set_id(id);
  *message.mutable_attend() = request;
  return stream.Write(message);
}

bool SendCancel(Stream& stream, std::uint64_t id) {
  v1::AttendStreamRequest message;
  message.set_id(id);
  message.mutable_cancel();
  return stream.Write(message);
}

class StreamTest : public ServerTest {
 protected:
  std::unique_ptr<Stream> Open() { return stub_->AttendStream(context_.get()); }

  void TearDown() override {
    context_ = nullptr;  // it holds the channel, for whose end the server would wait
    ServerTest::TearDown();
  }

  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();
};

TEST_F(StreamTest, AnswersMatchTheReferenceWhateverTheirOrder) {
  StartServer();
  const auto stream = Open();
  std::map<std::uint64_t, v1::AttendRequest> requests;
  for (int i = 0; i < 60; ++i) {
    // Some of one piece, some of many, answered out of order.
    const Sizes sizes = {.query_len = 1 + i % 7,
                         .kv_len = i % 10 == 0 ? 3000 : 1 + i,
                         .dtype = i % 3 == 0 ? DType::kBFloat16 : DType::kFloat32};
    v1::AttendRequest& request = requests[i + 1] = RandomRequest(sizes, i);
    request.mutable_output()->set_lse(i % 2 == 0);
    ASSERT_TRUE(Send(*stream, i + 1, request));
  }
  stream->WritesDone();
  v1::AttendStreamResponse answer;
  while (stream->Read(&answer)) {
    const auto found = requests.find(answer.id());
    ASSERT_NE(found, requests.end()) << answer.id();
    ASSERT_TRUE(answer.has_response()) << answer.error().message();
    ExpectMatchesReference(found->second, answer.response());
    requests.erase(found);
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(requests.empty());
  EXPECT_TRUE(WaitForMetric(kOpenStreams, 0));
  EXPECT_EQ(server_->Metric("attend_requests_total{code=\"OK\",method=\"AttendStream\"}"), 60);
  EXPECT_GT(server_->Metric("attend_copied_bytes_total"), 0);
  EXPECT_TRUE(WaitForMetric("attend_buffer_lent_bytes", 0));
}

TEST_F(StreamTest, ASlowRequestStopsNoneBehindItAndCanBeCancelled) {
  StartServer();
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 1, SlowRequest()));
  ASSERT_TRUE(WaitForMetric(kInFlight, 1));
  ASSERT_TRUE(SendCancel(*stream, 1));
  v1::AttendStreamResponse answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.error().code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(Send(*stream, 1, RandomRequest()));
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_TRUE(answer.has_response());
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// What is read past the bound would be refused by the queue.
TEST_F(StreamTest, TinyBoundHoldsBackAThousandRequests) {
  StartServer({"--max-stream-requests", "2", "--max-queued-requests", "16"});
  const auto stream = Open();
  const v1::AttendRequest request = RandomRequest({.kv_len = 200});
  std::thread writer([&] {
    for (int id = 0; id < 1000; ++id) EXPECT_TRUE(Send(*stream, id, request));
    stream->WritesDone();
  });
  int answered = 0;
  v1::AttendStreamResponse answer;
  while (stream->Read(&answer)) {
    EXPECT_TRUE(answer.has_response()) << answer.error().message();
    ++answered;
  }
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answered, 1000);
}

TEST_F(StreamTest, ClientThatIsKilledWithRequestsInFlightIsForgotten) {
  StartServer();
  ChildProcess caller({ATTEND_SLOW_CALLER, server_->tcp_target(), "4"});
  ASSERT_TRUE(WaitForMetric(kInFlight, 4)) << caller.Stderr();
  EXPECT_EQ(server_->Metric(kOpenStreams), 1);
  caller.Signal(SIGKILL);
  EXPECT_EQ(caller.WaitForExit(), 128 + SIGKILL);
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
  EXPECT_TRUE(WaitForMetric(kOpenStreams, 0));
  EXPECT_EQ(server_->Metric("attend_dropped_total{priority=\"normal\",reason=\"cancelled\"}"), 4);
  EXPECT_TRUE(WaitForMetric("attend_buffer_lent_bytes", 0));
  ExpectServes();
}

// Streams that never pause until the server goes: what it has read it answers, and it ends them
// all.
TEST_F(StreamTest, DrainUnderLoadAnswersWhatWasReadAndEndsEveryStream) {
  StartServer({"--drain-grace", "200ms", "--drain-timeout", "20s"});
  constexpr int kStreams = 3;
  const v1::AttendRequest request = RandomRequest({.query_len = 16, .kv_len = 300});
  std::atomic<int> answered{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < kStreams; ++i) {
    callers.emplace_back([&] {
      grpc::ClientContext context;
      const auto stream = stub_->AttendStream(&context);
      std::thread writer([&] {
        for (std::uint64_t id = 0; Send(*stream, id, request); ++id) {
        }
      });
      v1::AttendStreamResponse answer;
      while (stream->Read(&answer)) {
        EXPECT_TRUE(answer.has_response()) << answer.error().message();
        ++answered;
      }
      writer.join();
      EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
    });
  }
  EXPECT_TRUE(WaitUntil([&] { return answered > 300; }));
  server_->process().Signal(SIGTERM);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(server_->process().WaitForExit(), 0) << server_->process().Stderr();
}

TEST_F(StreamTest, RequestsThatOutlastTheDrainAreUnavailable) {
  StartServer({"--drain-grace", "100ms", "--drain-timeout", "1s"});
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 9, SlowRequest()));
  ASSERT_TRUE(WaitForMetric(kInFlight, 1));
  server_->process().Signal(SIGTERM);
  v1::AttendStreamResponse answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.id(), 9u);
  EXPECT_EQ(answer.error().code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server_->process().WaitForExit(), 0) << server_->process().Stderr();
}

// A caller that reads no answers costs what its bound allows, and goes with the drain.
TEST_F(StreamTest, CallerThatReadsNothingEndsWithTheDrain) {
  StartServer({"--drain-grace", "0s", "--drain-timeout", "1s", "--max-stream-requests", "4"});
  const auto stream = Open();
  const v1::AttendRequest request = RandomRequest({.query_len = 20'000, .kv_len = 1});
  for (int id = 0; id < 4; ++id) ASSERT_TRUE(Send(*stream, id, request));
  ASSERT_TRUE(WaitForMetric("attend_requests_total{code=\"OK\",method=\"AttendStream\"}", 4));
  EXPECT_EQ(server_->Metric(kOpenStreams), 1);
  server_->process().Signal(SIGTERM);
  EXPECT_EQ(server_->process().WaitForExit(), 0) << server_->process().Stderr();
  v1::AttendStreamResponse answer;
  while (stream->Read(&answer)) {
  }
  EXPECT_THAT(stream->Finish().error_code(),
              AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED));
}

TEST_F(StreamTest, CancelsAndTimeoutsThatRaceWithAnswersHarmNothing) {
  StartServer({"--max-stream-requests", "64"});
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    const auto stream = stub_->AttendStream(&context);
    std::thread reader([&] {
      v1::AttendStreamResponse answer;
      while (stream->Read(&answer)) {
        if (answer.has_response()) continue;
        EXPECT_THAT(answer.error().code(),
                    AnyOf(grpc::StatusCode::CANCELLED, grpc::StatusCode::DEADLINE_EXCEEDED))
            << answer.error().message();
      }
    });
    for (std::uint64_t id = 0; id < 200; ++id) {
      v1::AttendRequest request = RandomRequest({.query_len = 32, .kv_len = 64});
      if (random() % 3 == 0) {
        request.mutable_timeout()->set_nanos(static_cast<int>(1 + random() % 3'000'000));
      }
      Send(*stream, id, request);
      if (random() % 3 == 0) SendCancel(*stream, id - std::min<std::uint64_t>(id, random() % 8));
    }
    // Every other caller leaves in the middle.
    if (round % 2 == 0) {
      context.TryCancel();
    } else {
      stream->WritesDone();
    }
    reader.join();
    EXPECT_EQ(stream->Finish().error_code(),
              round % 2 == 0 ? grpc::StatusCode::CANCELLED : grpc::StatusCode::OK);
  }
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
  EXPECT_TRUE(WaitForMetric(kOpenStreams, 0));
  EXPECT_TRUE(WaitForMetric("attend_buffer_lent_bytes", 0));
  EXPECT_EQ(server_->Metric("attend_queue_depth{priority=\"normal\"}"), 0);
  ExpectServes();
}

}  // namespace
}  // namespace attend::testing

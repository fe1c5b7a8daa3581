// Calls that end in every way there is, at the same time. Meant for the sanitizers too.
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/random/random.h"
#include "absl/synchronization/blocking_counter.h"
#include "tests/unit/server/rpc/rpc_test_server.h"

namespace attend {
namespace {

class AttentionServiceStressTest : public RpcTest {};

// A call with a deadline around the time that it takes.
struct Call {
  grpc::ClientContext context;
  v1::AttendRequest request;
  v1::AttendResponse response;
  grpc::Status status;
};

TEST_F(AttentionServiceStressTest, FinishesEachCallOnceWhateverHappens) {
  constexpr int kRounds = 50;
  constexpr int kCallsPerRound = 40;
  Start({.max_queued_requests = 32, .max_batch_requests = 8});
  std::mt19937 generator(1);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::unique_ptr<Call>> calls;
    absl::BlockingCounter left(kCallsPerRound);
    for (int i = 0; i < kCallsPerRound; ++i) {
      Call& call = *calls.emplace_back(std::make_unique<Call>());
      call.request = Request(absl::Uniform(generator, 1, 100));
      call.context.set_deadline(std::chrono::system_clock::now() +
                                std::chrono::microseconds(absl::Uniform(generator, 100, 8000)));
      stub_->async()->Attend(&call.context, &call.request, &call.response,
                             [&call, &left](grpc::Status status) {
                               call.status = std::move(status);
                               left.DecrementCount();
                             });
      if (absl::Bernoulli(generator, 0.2)) call.context.TryCancel();
    }
    left.Wait();
    for (const std::unique_ptr<Call>& call : calls) {
      if (!call->status.ok()) continue;
      EXPECT_EQ(call->response.output().data().size(), call->request.query().data().size());
    }
  }
  EXPECT_TRUE(Attend(Request()).ok());
  Stop();
  EXPECT_EQ(Metric("attend_in_flight_requests"), "0");
  EXPECT_EQ(Metric("attend_queue_depth{priority=\"normal\"}"), "0");
  EXPECT_EQ(Requests("INTERNAL"), "0");
}

// Sends requests with timeouts around the time that they take, and cancels some of them.
void SendAll(grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>& stream,
             const std::vector<v1::AttendRequest>& requests, std::uint32_t seed) {
  std::mt19937 generator(seed);
  for (std::uint64_t id = 0; id < requests.size(); ++id) {
    v1::AttendStreamRequest message;
    message.set_id(id);
    *message.mutable_attend() = requests[id];
    if (absl::Bernoulli(generator, 0.5)) {
      message.mutable_attend()->mutable_timeout()->set_nanos(
          absl::Uniform(generator, 1, 8'000'000));
    }
    if (!stream.Write(message)) return;
    if (absl::Bernoulli(generator, 0.2)) {
      message.mutable_cancel();
      stream.Write(message);
    }
  }
}

// Streams that end in every way there is, at the same time; the last ones by a drain.
TEST_F(AttentionServiceStressTest, AnswersEachStreamedRequestOnceWhateverHappens) {
  constexpr int kStreams = 24;
  constexpr int kRequests = 150;
  max_stream_requests_ = 16;
  Start({.max_queued_requests = 24, .max_batch_requests = 8});
  std::vector<v1::AttendRequest> requests;
  for (int i = 0; i < kRequests; ++i) requests.push_back(Request(1 + i % 90));
  std::vector<std::thread> callers;
  absl::BlockingCounter undrained(kStreams / 2);
  for (std::uint32_t i = 0; i < kStreams; ++i) {
    callers.emplace_back([&, i] {
      grpc::ClientContext context;
      const auto stream = stub_->AttendStream(&context);
      std::thread writer([&] {
        SendAll(*stream, requests, i);
        if (i % 2 == 0) stream->WritesDone();
      });
      std::vector<int> answers(kRequests);
      v1::AttendStreamResponse answer;
      for (int read = 0; stream->Read(&answer); ++read) {
        ++answers[answer.id()];
        if (i % 6 == 0 && read == 30) context.TryCancel();
      }
      writer.join();
      for (const int count : answers) EXPECT_LE(count, 1);
      if (i % 6 != 0 && i % 2 == 0) {
        EXPECT_TRUE(stream->Finish().ok());
        for (const int count : answers) EXPECT_EQ(count, 1);
      } else {
        EXPECT_FALSE(stream->Finish().ok());
      }
      if (i % 2 == 0) undrained.DecrementCount();
    });
  }
  undrained.Wait();
  service_->Drain();  // ends those that would wait for more
  for (std::thread& caller : callers) caller.join();
  Stop();
  EXPECT_EQ(Metric("attend_in_flight_requests"), "0");
  EXPECT_EQ(Metric("attend_queue_depth{priority=\"normal\"}"), "0");
  EXPECT_EQ(Metric("attend_open_streams"), "0");
  EXPECT_EQ(Requests("INTERNAL", "AttendStream"), "0");
  WaitUntilBuffersAreBack();
}

}  // namespace
}  // namespace attend

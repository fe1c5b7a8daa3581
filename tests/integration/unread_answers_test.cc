// Answers that nobody reads: they give their memory back after --max-send-time.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/deaf_caller.h"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"
#include "tests/support/wait.h"

namespace attend::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kLentBytes[] = "attend_buffer_lent_bytes";
constexpr char kUntaken[] = "attend_untaken_answers_total";
constexpr char kOpenStreams[] = "attend_open_streams";
constexpr char kAnswered[] = "attend_requests_total{code=\"OK\",method=\"Attend\"}";
constexpr char kAnsweredOnStreams[] = "attend_requests_total{code=\"OK\",method=\"AttendStream\"}";

// Its answer is several flow control windows long, and its message one frame.
v1::AttendRequest LongAnswer() {
  return RandomRequest({.batch = 1,
                        .query_heads = 1,
                        .kv_heads = 1,
                        .query_len = 1000,
                        .kv_len = 1,
                        .head_dim = 1,
                        .value_dim = 400});
}

class UnreadAnswersTest : public ServerTest {
 protected:
  // A stream whose caller reads none of its answers.
  class Deaf {
   public:
    Deaf(v1::AttentionService::Stub& stub, int requests) : stream_(stub.AttendStream(&context_)) {
      for (int id = 0; id < requests; ++id) {
        v1::AttendStreamRequest message;
        message.set_id(static_cast<std::uint64_t>(id));
        *message.mutable_attend() = LongAnswer();
        EXPECT_TRUE(stream_->Write(message));
      }
    }

    // Reads what there is.
    grpc::StatusCode End() {
      v1::AttendStreamResponse answer;
      while (stream_->Read(&answer)) {
      }
      return stream_->Finish().error_code();
    }

   private:
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>>
        stream_;
  };
};

TEST_F(UnreadAnswersTest, ACallThatIsNotReadEndsAndGivesItsMemoryBack) {
  StartServer({"--max-send-time", "200ms", "--log-level", "debug"});
  DeafCaller caller(server_->tcp_target());
  caller.Call(LongAnswer().SerializeAsString());
  ASSERT_TRUE(WaitForMetric(kAnswered, 1));
  EXPECT_TRUE(caller.WaitForReset());
  EXPECT_EQ(server_->Metric(kUntaken), 1);
  EXPECT_TRUE(WaitForMetric(kLentBytes, 0));
  ExpectServes();
  EXPECT_THAT(server_->process().Stderr(), HasSubstr("its answer was not taken within 200ms"));
}

TEST_F(UnreadAnswersTest, AStreamThatIsNotReadEndsAndGivesItsMemoryBack) {
  StartServer({"--max-send-time", "200ms"});
  Deaf caller(*stub_, 4);
  ASSERT_TRUE(WaitForMetric(kAnsweredOnStreams, 4));
  EXPECT_TRUE(WaitForMetric(kOpenStreams, 0));
  EXPECT_TRUE(WaitForMetric(kLentBytes, 0));
  EXPECT_EQ(server_->Metric(kUntaken), 1);
  ExpectServes();
  EXPECT_EQ(caller.End(), grpc::StatusCode::CANCELLED);
}

// The pool holds twice --max-queued-bytes, most of which nobody reads.
TEST_F(UnreadAnswersTest, OthersAreServedAgainOnceTheMemoryIsBack) {
  StartServer(
      {"--max-send-time", "300ms", "--max-queued-bytes", "4MiB", "--max-message-bytes", "2MiB"});
  const v1::AttendRequest request = LongAnswer();
  std::vector<std::unique_ptr<DeafCaller>> callers;
  // Until the server refuses for want of memory.
  CallResult result;
  ASSERT_TRUE(WaitUntil([&] {
    callers.push_back(std::make_unique<DeafCaller>(server_->tcp_target()));
    callers.back()->Call(request.SerializeAsString());
    result = Attend(*stub_, request);
    return result.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  }));
  EXPECT_THAT(result.status.error_message(), HasSubstr("no memory for the response"));
  EXPECT_TRUE(WaitUntil([&] { return Attend(*stub_, request).status.ok(); }));
  EXPECT_TRUE(WaitForMetric(kLentBytes, 0));
}

// What is taken as it comes may take as long as it likes in all.
TEST_F(UnreadAnswersTest, AStreamThatIsReadOutlivesTheLimit) {
  StartServer({"--max-send-time", "100ms"});
  grpc::ClientContext context;
  const auto stream = stub_->AttendStream(&context);
  v1::AttendStreamRequest message;
  *message.mutable_attend() = LongAnswer();
  v1::AttendStreamResponse answer;
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(stream->Write(message));
    ASSERT_TRUE(stream->Read(&answer));
    EXPECT_TRUE(answer.has_response()) << answer.error().message();
    // For as long as another one takes to be ended.
    DeafCaller other(server_->tcp_target());
    other.Call(LongAnswer().SerializeAsString());
    ASSERT_TRUE(other.WaitForReset());
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(UnreadAnswersTest, WithoutALimitTheAnswerWaits) {
  StartServer({"--max-send-time", "0", "--drain-timeout", "1s"});
  DeafCaller caller(server_->tcp_target());
  caller.Call(LongAnswer().SerializeAsString());
  ASSERT_TRUE(WaitForMetric(kAnswered, 1));
  for (int i = 0; i < 50; ++i) ExpectServes();
  EXPECT_GT(*server_->Metric(kLentBytes), 0);
  EXPECT_EQ(server_->Metric(kUntaken), 0);
}

TEST_F(UnreadAnswersTest, ADrainDoesNotWaitForTheLimit) {
  StartServer({"--max-send-time", "1h", "--drain-grace", "0s", "--drain-timeout", "1s"});
  Deaf caller(*stub_, 1);
  ASSERT_TRUE(WaitForMetric(kAnsweredOnStreams, 1));
  server_->process().Signal(SIGTERM);
  EXPECT_EQ(server_->process().WaitForExit(), 0) << server_->process().Stderr();
  caller.End();
}

}  // namespace
}  // namespace attend::testing

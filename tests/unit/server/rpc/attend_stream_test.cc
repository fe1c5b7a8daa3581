#include "server/rpc/attend_stream.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/interceptor.h>
#include <grpcpp/support/server_interceptor.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "attend/v1/error.pb.h"
#include "tests/unit/server/rpc/rpc_test_server.h"

namespace attend {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

// The first field that an error's details blame.
std::string BlamedField(const v1::Error& error) {
  v1::BadRequest bad_request;
  if (error.details_size() == 0 || !bad_request.ParseFromString(error.details(0).value()) ||
      bad_request.field_violations_size() == 0) {
    return "none";
  }
  return bad_request.field_violations(0).field();
}

std::string BlamedField(const grpc::Status& status) {
  v1::Error error;
  return error.ParseFromString(status.error_details()) ? BlamedField(error) : "none";
}

// Holds the thread that starts a call's read number `number`, from 1.
class ReadGate {
 public:
  explicit ReadGate(int number) : number_(number) {}

  ~ReadGate() {
    if (!let_go_.HasBeenNotified()) LetGo();
  }

  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeFactory() {
    return std::make_unique<Factory>(*this);
  }
  void WaitUntilHeld() const { held_.WaitForNotification(); }
  void LetGo() { let_go_.Notify(); }

 private:
  class Interceptor final : public grpc::experimental::Interceptor {
   public:
    explicit Interceptor(ReadGate& gate) : gate_(gate) {}

    void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
      using grpc::experimental::InterceptionHookPoints;
      // A server's interceptors see the start of a read as a batch that has nothing to hook yet.
      const bool starts_read =
          methods->GetRecvMessage() != nullptr &&
          !methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE);
      if (starts_read && ++reads_ == gate_.number_) {
        gate_.held_.Notify();
        gate_.let_go_.WaitForNotification();
      }
      methods->Proceed();
    }

   private:
    ReadGate& gate_;
    std::atomic<int> reads_ = 0;
  };

  class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
   public:
    explicit Factory(ReadGate& gate) : gate_(gate) {}

    grpc::experimental::Interceptor* CreateServerInterceptor(
        grpc::experimental::ServerRpcInfo* /*info*/) override {
      return new Interceptor(gate_);  // gRPC's from here on
    }

   private:
    ReadGate& gate_;
  };

  const int number_;
  absl::Notification held_;
  absl::Notification let_go_;
};

class AttendStreamTest : public RpcTest {
 protected:
  using Stream = grpc::ClientReaderWriter<v1::AttendStreamRequest, v1::AttendStreamResponse>;

  std::unique_ptr<Stream> Open() { return stub_->AttendStream(&context_); }

  static bool Send(Stream& stream, std::uint64_t id, v1::AttendRequest request = Request()) {
    v1::AttendStreamRequest message;
    message.set_id(id);
    *message.mutable_attend() = std::move(request);
    return stream.Write(message);
  }

  static bool SendCancel(Stream& stream, std::uint64_t id) {
    v1::AttendStreamRequest message;
    message.set_id(id);
    message.mutable_cancel();
    return stream.Write(message);
  }

  // The next answer, which must be an error.
  static v1::Error ReadError(Stream& stream, std::uint64_t id) {
    v1::AttendStreamResponse answer;
    EXPECT_TRUE(stream.Read(&answer));
    EXPECT_EQ(answer.id(), id);
    EXPECT_TRUE(answer.has_error());
    return answer.error();
  }

  static void ExpectResponse(Stream& stream, std::uint64_t id) {
    v1::AttendStreamResponse answer;
    ASSERT_TRUE(stream.Read(&answer));
    EXPECT_EQ(answer.id(), id);
    EXPECT_TRUE(answer.has_response()) << answer.error().message();
  }

  // All answers that are left, by id; the status that follows is left to Finish.
  static std::map<std::uint64_t, v1::AttendStreamResponse> ReadAll(Stream& stream) {
    std::map<std::uint64_t, v1::AttendStreamResponse> answers;
    v1::AttendStreamResponse answer;
    while (stream.Read(&answer)) {
      EXPECT_TRUE(answers.try_emplace(answer.id(), answer).second) << answer.id();
    }
    return answers;
  }

  std::string Streamed(const std::string& code) const { return Requests(code, "AttendStream"); }
  std::string OpenStreamsMetric() const { return Metric("attend_open_streams"); }

  grpc::ClientContext context_;
};

TEST_F(AttendStreamTest, GivesTheAnswersThatAttendGives) {
  Start();
  const auto stream = Open();
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  std::map<std::uint64_t, v1::AttendRequest> requests;
  for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{300}, kHuge}) {
    v1::AttendRequest request = Request(static_cast<std::int64_t>(id % 1000) + 3);
    request.mutable_output()->set_lse(true);
    request.mutable_options()->set_causal(id != 7);
    if (id == 300) request.mutable_output()->set_dtype(v1::DATA_TYPE_BFLOAT16);
    requests[id] = request;
    ASSERT_TRUE(Send(*stream, id, request));
  }
  stream->WritesDone();
  const auto answers = ReadAll(*stream);
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(answers.size(), requests.size());
  for (const auto& [id, request] : requests) {
    v1::AttendResponse alone;
    ASSERT_TRUE(Attend(request, &alone).ok());
    const v1::AttendResponse& answer = answers.at(id).response();
    EXPECT_EQ(answer.output().SerializeAsString(), alone.output().SerializeAsString()) << id;
    EXPECT_EQ(answer.lse().SerializeAsString(), alone.lse().SerializeAsString()) << id;
    EXPECT_EQ(answer.stats().flops(), alone.stats().flops());
    EXPECT_EQ(answer.stats().server(), "test-server");
  }
  EXPECT_EQ(Streamed("OK"), "4");
  Stop();
  EXPECT_EQ(OpenStreamsMetric(), "0");
  WaitUntilBuffersAreBack();
}

TEST_F(AttendStreamTest, OutlivesTheErrorOfARequest) {
  Start();
  const auto stream = Open();
  v1::AttendRequest bad = Request();
  bad.mutable_key()->set_shape(2, -1);
  ASSERT_TRUE(Send(*stream, 5, bad));
  const v1::Error error = ReadError(*stream, 5);
  EXPECT_EQ(error.code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BlamedField(error), "key.shape[2]");
  EXPECT_EQ(OpenStreamsMetric(), "1");
  // The id is free again.
  ASSERT_TRUE(Send(*stream, 5));
  ExpectResponse(*stream, 5);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Streamed("INVALID_ARGUMENT"), "1");
  EXPECT_EQ(Streamed("OK"), "1");
}

TEST_F(AttendStreamTest, NamesAMessageThatAsksForNothing) {
  Start();
  const auto stream = Open();
  v1::AttendStreamRequest message;
  message.set_id(1);
  ASSERT_TRUE(stream->Write(message));
  const v1::Error nothing = ReadError(*stream, 1);
  EXPECT_EQ(nothing.code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BlamedField(nothing), "attend");
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(9, "later");
  ASSERT_TRUE(stream->Write(message));
  EXPECT_EQ(ReadError(*stream, 1).code(), StatusCode::UNIMPLEMENTED);
  ASSERT_TRUE(Send(*stream, 1));
  ExpectResponse(*stream, 1);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(AttendStreamTest, CancelsOneRequestAndNoOther) {
  Start();
  Plug plug;
  Hold(plug);
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 1));
  ASSERT_TRUE(Send(*stream, 2));
  WaitUntilPending(2);
  ASSERT_TRUE(SendCancel(*stream, 77));  // unknown: ignored
  ASSERT_TRUE(SendCancel(*stream, 1));
  EXPECT_EQ(ReadError(*stream, 1).code(), StatusCode::CANCELLED);
  EXPECT_EQ(scheduler_->num_pending(), 1);
  plug.LetGo();
  ExpectResponse(*stream, 2);
  ASSERT_TRUE(SendCancel(*stream, 2));  // done already: ignored
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Streamed("CANCELLED"), "1");
  EXPECT_EQ(Streamed("OK"), "1");
}

TEST_F(AttendStreamTest, HonoursTheTimeoutOfEachRequest) {
  Start();
  const auto stream = Open();
  v1::AttendRequest late = Request();
  late.mutable_timeout()->set_nanos(1);
  ASSERT_TRUE(Send(*stream, 1, late));
  EXPECT_EQ(ReadError(*stream, 1).code(), StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(Send(*stream, 2));
  ExpectResponse(*stream, 2);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(AttendStreamTest, ReadsThePriorityOfTheMetadata) {
  Start();
  context_.AddMetadata("x-attend-priority", "urgent");
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 1));
  EXPECT_EQ(BlamedField(ReadError(*stream, 1)), "x-attend-priority");
  v1::AttendRequest request = Request();
  request.set_priority(v1::PRIORITY_LOW);  // wins
  ASSERT_TRUE(Send(*stream, 1, request));
  ExpectResponse(*stream, 1);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(AttendStreamTest, EndsWithTheDeadlineOfTheCall) {
  Start();
  Plug plug;
  Hold(plug);
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 1));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
  WaitUntilPending(0);  // it leaves the queue though the plug is in
  plug.LetGo();
  Stop();
  EXPECT_EQ(Streamed("OK"), "0");
  EXPECT_EQ(OpenStreamsMetric(), "0");
  EXPECT_EQ(Metric("attend_in_flight_requests"), "0");
}

TEST_F(AttendStreamTest, EndsWithAnIdThatIsInFlight) {
  Start();
  Plug plug;
  Hold(plug);
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 3));
  ASSERT_TRUE(Send(*stream, 4));
  WaitUntilPending(2);
  ASSERT_TRUE(Send(*stream, 3));
  EXPECT_TRUE(ReadAll(*stream).empty());
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "id: is 3, which is in flight already; expected another one");
  EXPECT_EQ(BlamedField(status), "id");
  EXPECT_EQ(scheduler_->num_pending(), 0);
  plug.LetGo();
  Stop();
  EXPECT_EQ(Streamed("CANCELLED"), "2");
  EXPECT_EQ(Streamed("INVALID_ARGUMENT"), "1");
  EXPECT_EQ(OpenStreamsMetric(), "0");
}

// A stream of raw bytes.
class RawStream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawStream(grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>& stub,
            const std::string& bytes)
      : slice_(bytes), message_(&slice_, 1) {
    stub.PrepareBidiStreamingCall(&context_, "/attend.v1.AttentionService/AttendStream", {}, this);
    StartWrite(&message_);
    StartRead(&answer_);
    StartCall();
  }

  grpc::Status Wait() {
    done_.WaitForNotification();
    return status_;
  }

 private:
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    done_.Notify();
  }

  grpc::ClientContext context_;
  const grpc::Slice slice_;
  const grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
  grpc::Status status_;
  absl::Notification done_;
};

TEST_F(AttendStreamTest, EndsWithBytesThatAreNoMessage) {
  Start();
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel_);
  for (const char* bytes : {"\xff\xff\xff\xff\xff\xff", "\x12\x7f", "\x12\x02\x52\x05"}) {
    const grpc::Status status = RawStream(stub, bytes).Wait();
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("is not an AttendStreamRequest"));
    EXPECT_EQ(BlamedField(status), "request");
  }
  EXPECT_EQ(Streamed("INVALID_ARGUMENT"), "3");
  EXPECT_TRUE(Attend(Request()).ok());
}

// A stream that read on would fill the queue, and be refused.
TEST_F(AttendStreamTest, ReadsNoMoreThanItsBound) {
  constexpr int kRequests = 1000;
  max_stream_requests_ = 3;
  Start({.max_queued_requests = 32});
  Plug plug;
  Hold(plug);
  const auto stream = Open();
  std::thread writer([&] {
    for (int id = 0; id < kRequests; ++id) EXPECT_TRUE(Send(*stream, id));
    stream->WritesDone();
  });
  WaitUntilPending(3);
  EXPECT_EQ(Metric("attend_in_flight_requests"), "3");
  plug.LetGo();
  const auto answers = ReadAll(*stream);
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answers.size(), static_cast<std::size_t>(kRequests));
  EXPECT_EQ(Streamed("OK"), std::to_string(kRequests));
}

TEST_F(AttendStreamTest, TellsWhenToComeBackToAFullServer) {
  Start({.max_queued_requests = 1});
  Plug plug;
  Hold(plug);
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 1));
  WaitUntilPending(1);
  ASSERT_TRUE(Send(*stream, 2));
  const v1::Error error = ReadError(*stream, 2);
  EXPECT_EQ(error.code(), StatusCode::RESOURCE_EXHAUSTED);
  v1::RetryInfo retry;
  ASSERT_EQ(error.details_size(), 1);
  ASSERT_TRUE(retry.ParseFromString(error.details(0).value()));
  EXPECT_GT(retry.retry_delay().nanos(), 0);
  plug.LetGo();
  ExpectResponse(*stream, 1);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(AttendStreamTest, GivesUpWhatACallerLeftBehind) {
  Start();
  Plug plug;
  Hold(plug);
  const auto stream = Open();
  for (std::uint64_t id = 0; id < 5; ++id) ASSERT_TRUE(Send(*stream, id));
  WaitUntilPending(5);
  context_.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
  WaitUntilPending(0);
  plug.LetGo();
  Stop();
  EXPECT_EQ(Streamed("CANCELLED"), "5");
  EXPECT_EQ(OpenStreamsMetric(), "0");
  EXPECT_EQ(Metric("attend_in_flight_requests"), "0");
  WaitUntilBuffersAreBack();
}

TEST_F(AttendStreamTest, AnswersWhatIsInFlightWhenItDrains) {
  Start();
  Plug plug;
  Hold(plug);
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 1));
  ASSERT_TRUE(Send(*stream, 2));
  WaitUntilPending(2);
  service_->Drain();
  plug.LetGo();
  EXPECT_EQ(ReadAll(*stream).size(), 2u);
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Streamed("OK"), "2");
}

// gRPC would hold back for ever what has the initial metadata with it and more to follow.
TEST_F(AttendStreamTest, WritesItsFirstAnswersWhenSeveralAreReadyAtOnce) {
  ReadGate third_read(3);
  interceptors_.push_back(third_read.MakeFactory());
  Start();
  Plug plug;
  Hold(plug);
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 1));
  ASSERT_TRUE(Send(*stream, 2));
  // Who is about to read is to write as well, and finds both answers.
  third_read.WaitUntilHeld();
  plug.LetGo();
  Plug later;
  Hold(later);
  EXPECT_EQ(Streamed("OK"), "2");
  third_read.LetGo();
  stream->WritesDone();
  EXPECT_EQ(ReadAll(*stream).size(), 2u);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(AttendStreamTest, FailsWhatIsInFlightWhenTheSchedulerStops) {
  Start();
  Plug plug;
  Hold(plug);
  const auto stream = Open();
  ASSERT_TRUE(Send(*stream, 1));
  WaitUntilPending(1);
  service_->Drain();
  std::thread shutdown([this] { scheduler_->Shutdown(clock_.Now()); });
  EXPECT_EQ(ReadError(*stream, 1).code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::UNAVAILABLE);
  plug.LetGo();
  shutdown.join();
  EXPECT_EQ(Streamed("UNAVAILABLE"), "1");
}

TEST_F(AttendStreamTest, IdleAndLateStreamsEndWithADrain) {
  Start();
  const auto idle = Open();
  ASSERT_TRUE(Send(*idle, 1));
  ExpectResponse(*idle, 1);
  service_->Drain();
  EXPECT_EQ(idle->Finish().error_code(), StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  EXPECT_EQ(stub_->AttendStream(&context)->Finish().error_code(), StatusCode::UNAVAILABLE);
  Stop();
  EXPECT_EQ(OpenStreamsMetric(), "0");
}

}  // namespace
}  // namespace attend

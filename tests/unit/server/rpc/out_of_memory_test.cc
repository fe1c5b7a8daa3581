// Wherever memory runs out while a request is dealt with, it gets one answer, and the process
// lives.
//
// A program of its own, since it replaces the allocator.
#include <atomic>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "server/rpc/attend_job.h"
#include "tests/unit/server/rpc/failing_allocator.h"
#include "tests/unit/server/rpc/rpc_test_server.h"

namespace attend {
namespace {

using grpc::StatusCode;
using testing::AnyOf;

// In gRPC's threads the failure is between two looks at the clock: the one at a request's arrival
// and the one when it is counted. So it hits this project's code and no other.
class FailingClock final : public Clock {
 public:
  // The next request's allocation number `allocation` fails.
  void FailNext(int allocation) {
    untouched_ = false;
    next_ = allocation;
  }
  // Whether that request needed fewer.
  bool untouched() const { return untouched_; }

  absl::Time Now() const override {
    if (allocations_left >= 0) untouched_ = true;
    allocations_left = next_.exchange(-1);
    return clock_.Now();
  }
  bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition,
                  absl::Time deadline) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return clock_.AwaitUntil(mutex, condition, deadline);
  }

 private:
  MonotonicClock clock_;
  mutable std::atomic<int> next_{-1};
  mutable std::atomic<bool> untouched_{false};
};

// For the thread that makes it; the answer may come from any.
class Job final : public AttendJob {
 public:
  explicit Job(const AttentionServiceOptions& options)
      : AttendJob(options, Method::kAttend), starter_(std::this_thread::get_id()) {}

  // Starts what was read. This thread's allocation number `allocation` fails, if there are as many
  // until Start has returned or the answer has come: whether it did.
  bool StartShortOfMemory(int allocation, const CallFacts& facts) {
    starting_ = true;
    allocations_left = allocation;
    Start(absl::OkStatus(), facts);
    if (starting_) EndShortage();
    return failed_;
  }

  int answers = 0;
  StatusCode code = StatusCode::UNKNOWN;
  std::string text;
  absl::Notification answered;

 private:
  void EndShortage() {
    failed_ = allocations_left < 0;
    allocations_left = -1;
    starting_ = false;
  }

  void OnAnswer(AttendAnswer& answer) override {
    if (std::this_thread::get_id() == starter_ && starting_) EndShortage();
    const int left = std::exchange(allocations_left, -1);  // of another job that displaces this one
    ++answers;
    code = answer.status.error_code();
    text = answer.status.error_message();
    allocations_left = left;
    answered.Notify();
  }

  const std::thread::id starter_;
  bool starting_ = false;
  bool failed_ = false;
};

class OutOfMemoryTest : public RpcTest {
 protected:
  AttentionServiceOptions Options(Clock& clock) {
    return {.scheduler = scheduler_.get(),
            .metrics = &metrics_,
            .clock = &clock,
            .buffers = &buffers_,
            .logger = logger_,
            .limits = {},
            .info = MakeServerInfo({.server_name = "test-server"})};
  }

  static grpc::ByteBuffer Message(const v1::AttendRequest& request) {
    const grpc::Slice slice(request.SerializeAsString());
    return grpc::ByteBuffer(&slice, 1);
  }

  FailingClock failing_clock_;
};

TEST_F(OutOfMemoryTest, AJobIsAnsweredOnceWhateverFails) {
  Start();
  const AttentionServiceOptions options = Options(clock_);
  v1::AttendRequest request = Request();
  request.mutable_key()->add_shape(7);  // one too many
  CallFacts facts;
  facts.trace = TraceContext{std::string(32, 'a'), std::string(16, 'b'), "01"};
  int refused = 0;
  bool failed = true;
  for (int allocation = 0; failed; ++allocation) {
    Job job(options);
    grpc::ByteBuffer message = Message(request);
    ASSERT_TRUE(job.Read(message).ok());
    failed = job.StartShortOfMemory(allocation, facts);
    ASSERT_EQ(job.answers, 1) << allocation;
    if (job.code == StatusCode::RESOURCE_EXHAUSTED) ++refused;
    // Its line in the log may be what there was no memory for.
    if (job.code != StatusCode::RESOURCE_EXHAUSTED) {
      EXPECT_EQ(job.code, StatusCode::INVALID_ARGUMENT) << allocation;
    }
    EXPECT_NE(job.text, "") << allocation;
  }
  EXPECT_GT(refused, 5);
}

// The one that is displaced, too; and neither leaves anything behind.
TEST_F(OutOfMemoryTest, JobsThatDisplaceOthersAreAnsweredOnceWhateverFails) {
  Start({.max_queued_requests = 1});  // the plug holds the worker and no place
  const AttentionServiceOptions options = Options(clock_);
  v1::AttendRequest request = Request();
  int refused = 0;
  bool failed = true;
  for (int allocation = 0; failed; ++allocation) {
    Job less_urgent(options);
    Job urgent(options);
    {
      Plug plug;
      Hold(plug);
      request.set_priority(v1::PRIORITY_LOW);
      grpc::ByteBuffer message = Message(request);
      ASSERT_TRUE(less_urgent.Read(message).ok());
      less_urgent.Start(absl::OkStatus(), {});
      request.set_priority(v1::PRIORITY_HIGH);
      message = Message(request);
      ASSERT_TRUE(urgent.Read(message).ok());
      failed = urgent.StartShortOfMemory(allocation, {});
    }
    urgent.answered.WaitForNotification();
    less_urgent.answered.WaitForNotification();
    EXPECT_EQ(urgent.answers, 1) << allocation;
    EXPECT_EQ(less_urgent.answers, 1) << allocation;
    if (urgent.code == StatusCode::OK) {
      EXPECT_EQ(less_urgent.code, StatusCode::RESOURCE_EXHAUSTED) << allocation;
      continue;
    }
    ++refused;
    EXPECT_EQ(urgent.code, StatusCode::RESOURCE_EXHAUSTED) << allocation;
    EXPECT_THAT(less_urgent.code, AnyOf(StatusCode::OK, StatusCode::RESOURCE_EXHAUSTED));
  }
  EXPECT_GT(refused, 2);
  EXPECT_EQ(scheduler_->Load().admitted_requests, 0);
  EXPECT_EQ(scheduler_->Load().admitted_bytes, 0);
  EXPECT_EQ(Metric("attend_in_flight_requests"), "0");
}

TEST_F(OutOfMemoryTest, AStreamAnswersOrEndsWhateverFails) {
  Start();
  AttentionService service(Options(failing_clock_));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto stub = v1::AttentionService::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  int ended = 0;
  int allocation = 0;
  for (; !failing_clock_.untouched(); ++allocation) {
    failing_clock_.FailNext(allocation);
    grpc::ClientContext context;
    const auto stream = stub->AttendStream(&context);
    v1::AttendStreamRequest message;
    message.set_id(1);
    message.mutable_attend();  // without tensors
    ASSERT_TRUE(stream->Write(message));
    stream->WritesDone();
    v1::AttendStreamResponse answer;
    int answers = 0;
    for (; stream->Read(&answer); ++answers) {
      EXPECT_THAT(answer.error().code(),
                  AnyOf(StatusCode::INVALID_ARGUMENT, StatusCode::RESOURCE_EXHAUSTED));
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(answers, status.ok() ? 1 : 0) << allocation;
    if (status.ok()) continue;
    ++ended;
    EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << allocation;
  }
  EXPECT_GT(allocation, 5) << "nothing failed";
  EXPECT_GT(ended, 0);
  service.Drain();
  server->Shutdown();
  EXPECT_EQ(Metric("attend_in_flight_requests"), "0");
  EXPECT_EQ(Metric("attend_open_streams"), "0");
}

}  // namespace
}  // namespace attend

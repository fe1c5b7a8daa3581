// Who is admitted to the queue, and who leaves it without having been computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "server/schedule/scheduler.h"
#include "tests/unit/server/schedule/test_request.h"

namespace attend {
namespace {

using testing::HasSubstr;

using SchedulerQueueTest = SchedulerTest;

// A plug counts for nothing any more: it is past compute when it holds the worker.

TEST_F(SchedulerQueueTest, RefusesMoreRequestsThanItsBound) {
  Start({.max_queued_requests = 1});
  Plug plug;
  Hold(plug);
  TestRequest waiting, refused;
  SubmitOk(waiting);
  const absl::Status status = Submit(refused).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(refused.allocated);
  EXPECT_EQ(refused.answers, 0);
  EXPECT_EQ(Dropped("queue_full"), "1");
  plug.LetGo();
  EXPECT_TRUE(waiting.status().ok());
  TestRequest later;
  SubmitOk(later);
  EXPECT_TRUE(later.status().ok());
}

TEST_F(SchedulerQueueTest, CountsWhatRunsTowardsItsBound) {
  Start({.max_queued_requests = 2});
  Plug plug;
  Hold(plug);
  TestRequest small, large(512), next, refused;
  small.on_done = [&] {  // `large` runs now
    SubmitOk(next);
    EXPECT_EQ(Submit(refused).status().code(), absl::StatusCode::kResourceExhausted);
  };
  SubmitOk(small);
  SubmitOk(large);
  plug.LetGo();
  EXPECT_TRUE(large.status().ok());
  EXPECT_TRUE(next.status().ok());
  EXPECT_EQ(refused.answers, 0);
}

TEST_F(SchedulerQueueTest, RefusesMoreBytesThanItsBound) {
  TestRequest waiting, refused, small;
  small.message_bytes = 0;
  Start({.max_queued_bytes = waiting.bytes() + small.bytes()});
  Plug plug;
  Hold(plug);
  SubmitOk(waiting);
  EXPECT_EQ(Submit(refused).status().code(), absl::StatusCode::kResourceExhausted);
  SubmitOk(small);  // exactly what is left
  plug.LetGo();
  EXPECT_TRUE(small.status().ok());
}

TEST_F(SchedulerQueueTest, TellsARequestThatCanNeverFit) {
  TestRequest fits, never;
  never.message_bytes = fits.message_bytes + 1;
  Start({.max_queued_bytes = fits.bytes()});
  const absl::Status status = Submit(never).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(GetFieldViolation(status).has_value());
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(fits.bytes())));
  SubmitOk(fits);
  EXPECT_TRUE(fits.status().ok());
}

TEST_F(SchedulerQueueTest, GivesRoomBackWhenMemoryIsShort) {
  Start({.max_queued_requests = 1});
  TestRequest request;
  std::unique_ptr<AttentionTask> task = request.Task(clock_);
  task->allocate_outputs = []() -> absl::StatusOr<AttentionOutputs> { throw std::bad_alloc(); };
  EXPECT_EQ(scheduler_->Submit(task).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_NE(task, nullptr);
  task->allocate_outputs = []() -> absl::StatusOr<AttentionOutputs> {
    return absl::ResourceExhaustedError("no memory for this one");
  };
  EXPECT_EQ(scheduler_->Submit(task).status().message(), "no memory for this one");
  EXPECT_EQ(Dropped("no_memory"), "2");
  ASSERT_NE(task, nullptr);
  SubmitOk(request);
  EXPECT_TRUE(request.status().ok());
}

TEST_F(SchedulerQueueTest, RefusesWhatIsLateAlready) {
  Start();
  TestRequest late;
  late.deadline = clock_.Now();
  EXPECT_EQ(Submit(late).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(late.allocated);
}

TEST_F(SchedulerQueueTest, DropsWhatExpiredBeforeItWasComputed) {
  Start();
  Plug plug;
  Hold(plug);
  TestRequest expired, patient;
  expired.deadline = clock_.Now() + absl::Milliseconds(5);
  patient.deadline = clock_.Now() + absl::Milliseconds(11);
  SubmitOk(expired);
  SubmitOk(patient);
  clock_.Advance(absl::Milliseconds(10));
  plug.LetGo();
  EXPECT_EQ(expired.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(expired.stats().batch_size, 0);
  EXPECT_EQ(expired.stats().queue, absl::Milliseconds(10));
  EXPECT_TRUE(expired.IsUntouched());
  EXPECT_TRUE(patient.status().ok());
  EXPECT_EQ(patient.stats().batch_size, 1);
  EXPECT_EQ(Dropped("deadline"), "1");
}

TEST_F(SchedulerQueueTest, MakesRoomByDroppingWhatExpired) {
  Start({.max_queued_requests = 1});
  Plug plug;
  Hold(plug);
  TestRequest expired, next;
  expired.deadline = clock_.Now() + absl::Milliseconds(5);
  SubmitOk(expired);
  clock_.Advance(absl::Milliseconds(5));
  SubmitOk(next);
  ASSERT_TRUE(expired.HasAnswer());
  EXPECT_EQ(expired.status().code(), absl::StatusCode::kDeadlineExceeded);
  plug.LetGo();
  EXPECT_TRUE(next.status().ok());
}

TEST_F(SchedulerQueueTest, AnswersWhatExpiresWhileItWaitsForCompany) {
  Start({.max_queue_delay = absl::Hours(1)});
  TestRequest patient, expired;
  expired.deadline = clock_.Now() + absl::Minutes(1);
  SubmitOk(patient);
  SubmitOk(expired);
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(expired.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(patient.HasAnswer());
  clock_.Advance(absl::Minutes(59));
  EXPECT_EQ(patient.stats().batch_size, 1);
}

TEST_F(SchedulerQueueTest, AnswersWhatExpiresWhileAllWorkersAreBusy) {
  TestRequest running(512), small, large(512);
  Start({.max_running_bytes = WorkingBytes(running.Problem())});
  Plug plug;
  Hold(plug);
  small.deadline = clock_.Now() + absl::Milliseconds(1);
  large.deadline = clock_.Now() + absl::Milliseconds(2);
  for (TestRequest* request : {&running, &small, &large}) SubmitOk(*request);
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(small.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(large.HasAnswer());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(large.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(large.stats().queue, absl::Milliseconds(2));
  plug.LetGo();
  EXPECT_TRUE(running.status().ok());
}

TEST_F(SchedulerQueueTest, AnswersACancelledRequestAtOnce) {
  Start();
  Plug plug;
  Hold(plug);
  TestRequest waiting, other;
  const absl::StatusOr<TaskId> id = Submit(waiting);
  SubmitOk(other);
  EXPECT_EQ(scheduler_->num_pending(), 2);
  EXPECT_EQ(Metric("attend_queue_depth{priority=\"normal\"}"), "2");
  clock_.Advance(absl::Milliseconds(3));
  scheduler_->Cancel(*id);
  ASSERT_TRUE(waiting.HasAnswer());
  EXPECT_EQ(waiting.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(waiting.stats().queue, absl::Milliseconds(3));
  EXPECT_EQ(waiting.stats().batch_size, 0);
  EXPECT_EQ(scheduler_->num_pending(), 1);
  EXPECT_EQ(Dropped("cancelled"), "1");
  plug.LetGo();
  EXPECT_TRUE(other.status().ok());
  EXPECT_TRUE(waiting.IsUntouched());
  EXPECT_EQ(Metric("attend_queue_depth{priority=\"normal\"}"), "0");
}

TEST_F(SchedulerQueueTest, TellsAPassedDeadlineFromACallerWhoLeft) {
  Start();
  Plug plug;
  Hold(plug);
  TestRequest waiting;
  waiting.deadline = clock_.Now() + absl::Milliseconds(3);
  const absl::StatusOr<TaskId> id = Submit(waiting);
  clock_.Advance(absl::Milliseconds(3));
  scheduler_->Cancel(*id);  // as gRPC does when a call's deadline passes
  EXPECT_EQ(waiting.status().code(), absl::StatusCode::kDeadlineExceeded);
  plug.LetGo();
}

TEST_F(SchedulerQueueTest, IgnoresTheCancelOfWhatIsDone) {
  Start();
  TestRequest request;
  const absl::StatusOr<TaskId> id = Submit(request);
  EXPECT_TRUE(request.status().ok());
  scheduler_->Cancel(*id);
  scheduler_->Cancel(*id + 1000);
  EXPECT_EQ(request.answers, 1);
}

TEST_F(SchedulerQueueTest, AnswersWhatWaitsWhenItIsDestroyed) {
  Start({.max_queue_delay = absl::Hours(1)});
  TestRequest waiting;
  SubmitOk(waiting);
  scheduler_.reset();
  ASSERT_TRUE(waiting.HasAnswer());
  EXPECT_EQ(waiting.answers, 1);
}

}  // namespace
}  // namespace attend

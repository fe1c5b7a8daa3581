// How what waits is computed, and how it ends.
#include "server/schedule/scheduler.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/reference.h"
#include "core/base/status.h"
#include "tests/unit/server/schedule/test_request.h"

namespace attend {
namespace {

using testing::ElementsAre;

TEST_F(SchedulerTest, ComputesWhatTheReferenceComputes) {
  Start();
  TestRequest request(70);
  SubmitOk(request);
  ASSERT_TRUE(request.status().ok()) << request.status();
  const AttentionProblem problem = request.Problem();
  const ReferenceResult expected = ReferenceAttention(problem);
  const std::vector<float> output = request.output().ToFloats();
  ASSERT_EQ(output.size(), expected.output.size());
  for (std::size_t i = 0; i < output.size(); ++i) {
    EXPECT_NEAR(output[i], expected.output[i], 2e-6 * expected.magnitude[i]) << i;
  }
}

TEST_F(SchedulerTest, StartsALoneRequestAtOnce) {
  Start();
  TestRequest request;
  SubmitOk(request);
  EXPECT_TRUE(request.status().ok());
  EXPECT_EQ(request.stats().batch_size, 1);
  EXPECT_EQ(request.stats().queue, absl::ZeroDuration());
  EXPECT_EQ(request.stats().compute, absl::ZeroDuration());
}

TEST_F(SchedulerTest, TakesWhatWaitsTogetherUpToTheBoundOfRequests) {
  Start({.max_batch_requests = 3});
  Plug plug;
  Hold(plug);
  std::vector<TestRequest> requests(7);
  for (TestRequest& request : requests) SubmitOk(request);
  clock_.Advance(absl::Milliseconds(5));
  plug.LetGo();
  std::vector<int> sizes;
  for (TestRequest& request : requests) {
    EXPECT_TRUE(request.status().ok());
    EXPECT_EQ(request.stats().queue, absl::Milliseconds(5));
    sizes.push_back(request.stats().batch_size);
  }
  EXPECT_THAT(sizes, ElementsAre(3, 3, 3, 3, 3, 3, 1));
  EXPECT_EQ(plug.request().stats().batch_size, 1);
}

TEST_F(SchedulerTest, TakesWhatWaitsTogetherUpToTheBoundOfWork) {
  TestRequest first, second, third, large(64), last;
  Start({.max_batch_flops = 2 * first.flops()});
  Plug plug;
  Hold(plug);
  for (TestRequest* request : {&first, &second, &third, &large, &last}) SubmitOk(*request);
  plug.LetGo();
  EXPECT_EQ(first.stats().batch_size, 2);
  EXPECT_EQ(second.stats().batch_size, 2);
  EXPECT_EQ(third.stats().batch_size, 2);
  EXPECT_EQ(last.stats().batch_size, 2);
  EXPECT_EQ(large.stats().batch_size, 1);  // on its own, being more than the bound
}

TEST_F(SchedulerTest, ReadsABoundOfZeroAsNone) {
  Start({.max_batch_flops = 0});
  Plug plug;
  Hold(plug);
  TestRequest first(64), second(64);
  SubmitOk(first);
  SubmitOk(second);
  plug.LetGo();
  EXPECT_EQ(first.stats().batch_size, 2);
  EXPECT_EQ(second.stats().batch_size, 2);
}

TEST_F(SchedulerTest, CountsTheDelayFromTheOldest) {
  Start({.max_queue_delay = absl::Milliseconds(10)});
  TestRequest oldest, newest;
  SubmitOk(oldest);
  clock_.Advance(absl::Milliseconds(9));
  SubmitOk(newest);
  EXPECT_FALSE(oldest.HasAnswer());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(oldest.stats().batch_size, 2);
  EXPECT_EQ(oldest.stats().queue, absl::Milliseconds(10));
  EXPECT_EQ(newest.stats().batch_size, 2);
  EXPECT_EQ(newest.stats().queue, absl::Milliseconds(1));
}

TEST_F(SchedulerTest, WaitsForTheNextOldestWhenTheOldestIsGone) {
  Start({.max_queue_delay = absl::Milliseconds(10)});
  TestRequest oldest, middle, newest;
  const absl::StatusOr<TaskId> id = Submit(oldest);
  clock_.Advance(absl::Milliseconds(5));
  SubmitOk(middle);
  scheduler_->Cancel(*id);
  clock_.Advance(absl::Milliseconds(9));
  SubmitOk(newest);
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(middle.stats().batch_size, 2);
  EXPECT_EQ(middle.stats().queue, absl::Milliseconds(10));
  EXPECT_EQ(newest.stats().batch_size, 2);
}

TEST_F(SchedulerTest, SendsAFullBatchAtOnceWhateverTheDelay) {
  Start({.max_batch_requests = 2, .max_queue_delay = absl::Hours(1)});
  TestRequest first, second;
  SubmitOk(first);
  SubmitOk(second);
  EXPECT_EQ(first.stats().batch_size, 2);
  EXPECT_EQ(first.stats().queue, absl::ZeroDuration());
}

TEST_F(SchedulerTest, SendsABatchThatIsFullOfWorkAtOnceWhateverTheDelay) {
  TestRequest first, second;
  Start({.max_batch_flops = 2 * first.flops(), .max_queue_delay = absl::Hours(1)});
  SubmitOk(first);
  SubmitOk(second);
  EXPECT_EQ(first.stats().batch_size, 2);
}

TEST_F(SchedulerTest, TakesPrioritiesInOrderAndFirstComeWithinEach) {
  Start({.max_batch_requests = 1});
  Plug plug;
  Hold(plug);
  Order order;
  std::vector<TestRequest> requests(6);
  const Priority priorities[] = {Priority::kLow,  Priority::kNormal, Priority::kHigh,
                                 Priority::kHigh, Priority::kNormal, Priority::kLow};
  const char* names[] = {"low 1", "normal 1", "high 1", "high 2", "normal 2", "low 2"};
  for (int i = 0; i < 6; ++i) {
    requests[i].priority = priorities[i];
    order.Watch(requests[i], names[i]);
    SubmitOk(requests[i]);
  }
  plug.LetGo();
  for (TestRequest& request : requests) EXPECT_TRUE(request.status().ok());
  EXPECT_THAT(order.names(),
              ElementsAre("high 1", "high 2", "normal 1", "normal 2", "low 1", "low 2"));
}

TEST_F(SchedulerTest, TakesWhatWaitedLongBeforeAllThatCameLater) {
  Start({.max_batch_requests = 1, .max_priority_wait = absl::Seconds(1)});
  Plug plug;
  Hold(plug);
  Order order;
  TestRequest old_low, old_high, low, high;
  old_low.priority = low.priority = Priority::kLow;
  old_high.priority = high.priority = Priority::kHigh;
  const auto submit = [&](TestRequest& request, const char* name) {
    order.Watch(request, name);
    SubmitOk(request);
  };
  submit(old_low, "old low");
  submit(old_high, "old high");
  clock_.Advance(absl::Milliseconds(1));
  submit(low, "low");
  submit(high, "high");
  clock_.Advance(absl::Milliseconds(999));
  plug.LetGo();
  for (TestRequest* request : {&old_low, &old_high, &low, &high}) {
    EXPECT_TRUE(request->status().ok());
  }
  EXPECT_THAT(order.names(), ElementsAre("old low", "old high", "high", "low"));
}

TEST_F(SchedulerTest, AnswersWhatThereIsNoMemoryToCompute) {
  Start({.max_queued_bytes = std::numeric_limits<std::int64_t>::max()});
  // One number that stands for 2^38 dims: no machine can gather 64 rows of these, twice.
  constexpr std::int64_t kDims = std::int64_t{1} << 38;
  const float number = 1;
  const auto* bytes = reinterpret_cast<const std::byte*>(&number);
  AttentionArgs args;
  args.query = {DType::kFloat32, {1, 1, 17, kDims}, {0, 0, 0, 0}, bytes};
  args.key = args.value = {DType::kFloat32, {1, 1, 1, kDims}, {0, 0, 0, 0}, bytes};
  AttentionLimits limits;
  limits.max_head_dim = limits.max_value_dim = kDims;
  absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(args, limits);
  ASSERT_TRUE(problem.ok()) << problem.status();
  TestRequest huge(17), next;
  std::unique_ptr<AttentionTask> task = huge.Task(clock_);
  task->problem = *std::move(problem);
  huge.taken = scheduler_->Submit(task).ok();
  ASSERT_TRUE(huge.taken);
  EXPECT_EQ(huge.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(huge.stats().batch_size, 0);
  EXPECT_EQ(Dropped("no_memory"), "1");
  SubmitOk(next);
  EXPECT_TRUE(next.status().ok());
}

TEST_F(SchedulerTest, ComputesWhatWaitsBeforeItShutsDown) {
  Start({.max_queue_delay = absl::Hours(1)});
  TestRequest first, second;
  SubmitOk(first);
  SubmitOk(second);
  scheduler_->Shutdown(absl::InfiniteFuture());
  ASSERT_TRUE(first.HasAnswer() && second.HasAnswer());
  EXPECT_TRUE(first.status().ok());
  EXPECT_TRUE(second.status().ok());
  TestRequest late;
  EXPECT_EQ(Submit(late).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(late.allocated);
}

TEST_F(SchedulerTest, AnswersEverythingWhenTheTimeToShutDownIsOver) {
  TestRequest large(512), small, waiting(600);
  Start({.max_running_bytes = WorkingBytes(large.Problem())});  // no memory for another one
  Plug plug;
  Hold(plug);
  absl::Notification large_runs;
  // `small` keeps the only worker until Shutdown has given up on `large`, which it does before it
  // answers `waiting`.
  small.on_done = [&] {
    large_runs.Notify();
    EXPECT_FALSE(waiting.status().ok());
  };
  for (TestRequest* request : {&large, &small, &waiting}) SubmitOk(*request);
  plug.LetGo();
  large_runs.WaitForNotification();
  scheduler_->Shutdown(clock_.Now());
  EXPECT_TRUE(small.status().ok());
  EXPECT_EQ(large.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(waiting.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(waiting.IsUntouched());
}

TEST_F(SchedulerTest, ShutsDownOnceHoweverOftenItIsTold) {
  Start();
  scheduler_->Shutdown(absl::InfiniteFuture());
  scheduler_->Shutdown(absl::InfinitePast());
  scheduler_.reset();
}

class BadOptionsTest
    : public SchedulerTest,
      public testing::WithParamInterface<std::pair<SchedulerOptions, std::string>> {};

TEST_P(BadOptionsTest, AreRefusedByName) {
  const absl::Status status =
      Scheduler::Create(GetParam().first, engine_, executor_, clock_, metrics_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(status)->field, GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadOptionsTest,
    testing::Values(
        std::pair(SchedulerOptions{.max_queued_requests = 0}, "max_queued_requests"),
        std::pair(SchedulerOptions{.max_queued_bytes = 0}, "max_queued_bytes"),
        std::pair(SchedulerOptions{.max_batch_requests = 0}, "max_batch_requests"),
        std::pair(SchedulerOptions{.max_batch_flops = -1}, "max_batch_flops"),
        std::pair(SchedulerOptions{.max_running_bytes = 0}, "max_running_bytes"),
        std::pair(SchedulerOptions{.max_queue_delay = -absl::Seconds(1)}, "max_queue_delay"),
        std::pair(SchedulerOptions{.max_priority_wait = -absl::Seconds(1)}, "max_priority_wait")),
    [](const auto& param_info) { return param_info.param.second; });

}  // namespace
}  // namespace attend

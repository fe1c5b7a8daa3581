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

// The order in which requests were answered.
class Order {
 public:
  void Watch(TestRequest& request, std::string name) {
    request.on_done = [this, name] {
      absl::MutexLock lock(&mutex_);
      names_.push_back(name);
    };
  }

  std::vector<std::string> names() const {
    absl::MutexLock lock(&mutex_);
    return names_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

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

TEST_F(SchedulerTest, AnswersASmallRequestBeforeALargeOneThatCameFirst) {
  Start();
  Plug plug;
  Hold(plug);
  Order order;
  TestRequest large(512), small;
  order.Watch(large, "large");
  order.Watch(small, "small");
  SubmitOk(large);
  SubmitOk(small);
  plug.LetGo();
  EXPECT_EQ(large.stats().batch_size, 1);
  EXPECT_EQ(small.stats().batch_size, 2);
  EXPECT_THAT(order.names(), ElementsAre("small", "large"));
}

TEST_F(SchedulerTest, StopsACancelledRequestBetweenTiles) {
  Start();
  Plug plug;
  Hold(plug);
  TestRequest large(512), small;
  const absl::StatusOr<TaskId> id = Submit(large);
  // Answered while the large one is computed, and the only worker is here.
  small.on_done = [this, &id] { scheduler_->Cancel(*id); };
  SubmitOk(small);
  plug.LetGo();
  EXPECT_TRUE(small.status().ok());
  EXPECT_EQ(large.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(large.stats().batch_size, 1);
}

TEST_F(SchedulerTest, StopsARequestWhoseTimeRunsOutBetweenTiles) {
  Start();
  Plug plug;
  Hold(plug);
  TestRequest large(512), small;
  large.deadline = clock_.Now() + absl::Seconds(1);
  small.on_done = [this] { clock_.Advance(absl::Seconds(1)); };
  SubmitOk(large);
  SubmitOk(small);
  plug.LetGo();
  EXPECT_TRUE(small.status().ok());
  EXPECT_EQ(large.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(large.stats().compute, absl::Seconds(1));
}

// Stops the worker at the `number`th time that it asks for the time, until it is let go.
class PausingClock final : public Clock {
 public:
  explicit PausingClock(int number) : calls_left_(number) {}

  absl::Time Now() const override {
    if (std::this_thread::get_id() != owner_ && --calls_left_ == 0) {
      reached_.Notify();
      let_go_.WaitForNotification();
    }
    return clock_.Now();
  }

  bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, absl::Time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override {
    // The timer's thread is none that is to be stopped, and these tests let no time pass.
    mutex.Await(condition);
    return true;
  }

  void WaitUntilReached() const { reached_.WaitForNotification(); }
  void LetGo() { let_go_.Notify(); }

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  mutable std::atomic<int> calls_left_;
  mutable absl::Notification reached_;
  mutable absl::Notification let_go_;
  FakeClock clock_;
};

TEST_F(SchedulerTest, AnswersASmallRequestInTheMidstOfALongTile) {
  // Two tiles of 64 queries against 65,536 keys each. The time is asked for by each of 129 units
  // that gather, by each tile, and in it before each 512 keys: this is in the midst of the second.
  PausingClock clock(129 + 129 + 50);
  const auto scheduler = Scheduler::Create({}, engine_, executor_, clock, metrics_);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  const Tensor many = TestRequest::RampTensor(65'536);
  Order order;
  TestRequest large(128), small;
  large.deadline = clock.Now() + absl::Hours(1);  // without one nobody asks for the time
  order.Watch(large, "large");
  order.Watch(small, "small");
  std::unique_ptr<AttentionTask> task = large.Task(clock);
  AttentionArgs args;
  const Tensor queries = TestRequest::RampTensor(128);
  args.query = queries.view();
  args.key = args.value = many.view();
  task->problem = *AttentionProblem::Create(args);
  large.taken = (*scheduler)->Submit(task).ok();
  clock.WaitUntilReached();
  task = small.Task(clock);
  small.taken = (*scheduler)->Submit(task).ok();
  clock.LetGo();
  EXPECT_TRUE(small.status().ok());
  EXPECT_TRUE(large.status().ok());
  EXPECT_THAT(order.names(), ElementsAre("small", "large"));
}

TEST_F(SchedulerTest, RunsNoMoreAtOnceThanThereIsMemoryFor) {
  TestRequest first(512), second(512), third(512);
  const std::int64_t bytes = WorkingBytes(first.Problem());
  Start({.max_running_bytes = 3 * bytes - 1});
  Plug plug;
  Hold(plug);
  for (TestRequest* request : {&first, &second, &third}) SubmitOk(*request);
  EXPECT_EQ(scheduler_->num_pending(), 1);
  plug.LetGo();
  for (TestRequest* request : {&first, &second, &third}) EXPECT_TRUE(request->status().ok());
}

TEST_F(SchedulerTest, RunsWhatNeedsMoreMemoryThanTheBoundAlone) {
  Start({.max_running_bytes = 1});
  Plug plug;
  Hold(plug);
  TestRequest first(512), second(600), small;
  for (TestRequest* request : {&first, &second, &small}) SubmitOk(*request);
  EXPECT_EQ(scheduler_->num_pending(), 2);
  plug.LetGo();
  EXPECT_TRUE(small.status().ok());
  EXPECT_TRUE(first.status().ok());
  EXPECT_TRUE(second.status().ok());
  EXPECT_EQ(second.stats().batch_size, 1);
}

TEST_F(SchedulerTest, NeverLetsWhatNeedsLittleMemoryWaitForWhatNeedsMuch) {
  TestRequest running(32'768), blocked(32'768), little(512);
  const std::int64_t bytes = WorkingBytes(running.Problem());
  Start({.max_queued_bytes = std::int64_t{1} << 32, .max_running_bytes = bytes * 3 / 2});
  Plug plug;
  Hold(plug);
  const absl::StatusOr<TaskId> first = Submit(running);
  const absl::StatusOr<TaskId> second = Submit(blocked);
  EXPECT_EQ(scheduler_->num_pending(), 1);
  ASSERT_LE(WorkingBytes(little.Problem()), bytes * 3 / 2 / 64);
  SubmitOk(little);
  EXPECT_EQ(scheduler_->num_pending(), 1);  // it has been started beside the blocked one
  scheduler_->Cancel(*first);
  scheduler_->Cancel(*second);
  plug.LetGo();
  EXPECT_TRUE(little.status().ok());
}

TEST_F(SchedulerTest, RunsFewAtATimeButAsManyOfAHigherPriorityBeside) {
  Start();
  Plug plug;
  Hold(plug);
  TestRequest high[] = {TestRequest(512), TestRequest(512), TestRequest(512)};
  TestRequest normal[] = {TestRequest(512), TestRequest(512), TestRequest(512)};
  for (TestRequest& request : normal) SubmitOk(request);
  EXPECT_EQ(scheduler_->num_pending(), 1);
  for (TestRequest& request : high) {
    request.priority = Priority::kHigh;
    SubmitOk(request);
  }
  EXPECT_EQ(scheduler_->num_pending(), 2);
  plug.LetGo();
  for (TestRequest& request : normal) EXPECT_TRUE(request.status().ok());
  for (TestRequest& request : high) EXPECT_TRUE(request.status().ok());
}

// Under overload what is at the head of the queue has waited nearly all of its time.
TEST_F(SchedulerTest, ComputesNothingThatWouldBeTooLate) {
  Start();
  TestRequest slow(512), small;
  {
    Plug plug;
    Hold(plug);
    small.on_done = [this] { clock_.Advance(absl::Seconds(10)); };  // in the midst of the slow one
    SubmitOk(slow);
    SubmitOk(small);
    plug.LetGo();
    ASSERT_TRUE(slow.status().ok());
    ASSERT_EQ(slow.stats().compute, absl::Seconds(10));
  }
  Plug plug;
  Hold(plug);
  TestRequest running(512), hopeless(512), patient(512);
  hopeless.deadline = clock_.Now() + absl::Seconds(13);  // of which a quarter is for the answer
  patient.deadline = clock_.Now() + absl::Seconds(14);
  SubmitOk(running);
  SubmitOk(hopeless);
  SubmitOk(patient);
  EXPECT_EQ(hopeless.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(hopeless.stats().batch_size, 0);
  EXPECT_TRUE(hopeless.IsUntouched());
  plug.LetGo();
  EXPECT_TRUE(running.status().ok());
  EXPECT_TRUE(patient.status().ok());
}

TEST_F(SchedulerTest, TriesOneHoweverHopelessItLooks) {
  Start();
  TestRequest slow(512), small, last(512);
  Plug plug;
  Hold(plug);
  small.on_done = [this] { clock_.Advance(absl::Seconds(10)); };
  SubmitOk(slow);
  SubmitOk(small);
  plug.LetGo();
  ASSERT_TRUE(slow.status().ok());
  last.deadline = clock_.Now() + absl::Seconds(1);
  SubmitOk(last);
  EXPECT_TRUE(last.status().ok());
}

TEST_F(SchedulerTest, TakesManyTinyTilesForWhatTheyAre) {
  Start();
  Plug plug;
  Hold(plug);
  // Hardly any work by its FLOPs, but a thousand tiles.
  const Tensor input =
      Tensor::FromFloats(DType::kFloat32, {1, 1024, 1, 1}, std::vector<float>(1024));
  AttentionArgs args;
  args.query = args.key = args.value = input.view();
  Tensor output = input;
  TestRequest request, tiny;
  std::unique_ptr<AttentionTask> task = request.Task(clock_);
  task->problem = *AttentionProblem::Create(args);
  task->allocate_outputs = [&]() -> absl::StatusOr<AttentionOutputs> {
    return AttentionOutputs{.output = output.data.data()};
  };
  request.taken = scheduler_->Submit(task).ok();
  SubmitOk(tiny);
  EXPECT_EQ(scheduler_->num_pending(), 1);  // the tiny one waits for a group, the other runs
  plug.LetGo();
  EXPECT_TRUE(request.status().ok());
  EXPECT_TRUE(tiny.status().ok());
}

TEST_F(SchedulerTest, GivesAHighPriorityMoreOfTheWorkers) {
  Start();
  Plug plug;
  Hold(plug);
  Order order;
  // The same work, the less urgent one first.
  TestRequest normal(1024), high(1024), low(1024);
  high.priority = Priority::kHigh;
  low.priority = Priority::kLow;
  order.Watch(low, "low");
  order.Watch(normal, "normal");
  order.Watch(high, "high");
  for (TestRequest* request : {&low, &normal, &high}) SubmitOk(*request);
  plug.LetGo();
  for (TestRequest* request : {&low, &normal, &high}) EXPECT_TRUE(request->status().ok());
  EXPECT_THAT(order.names(), ElementsAre("high", "normal", "low"));
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

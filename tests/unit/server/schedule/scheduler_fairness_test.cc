// Small and large, urgent and less urgent side by side: who waits for whom.
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

#include "server/schedule/scheduler.h"
#include "tests/unit/server/schedule/test_request.h"

namespace attend {
namespace {

using testing::ElementsAre;

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
  // Beside another one it takes 20 s, and a quarter of its time is for the answer.
  hopeless.deadline = clock_.Now() + absl::Seconds(26);
  patient.deadline = clock_.Now() + absl::Seconds(27);
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

}  // namespace
}  // namespace attend

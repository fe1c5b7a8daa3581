#include "server/schedule/running_tasks.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "server/schedule/measured_job.h"
#include "server/schedule/pace.h"
#include "tests/unit/server/schedule/test_request.h"

namespace attend {
namespace {

using Outlook = RunningTasks::Outlook;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// --- The pace
// -------------------------------------------------------------------------------------

TEST(PaceTest, IsUnknownAtFirst) { EXPECT_EQ(Pace().TimeFor(1), absl::ZeroDuration()); }

TEST(PaceTest, IsTheTimeThatCostTook) {
  Pace pace;
  pace.Begin(At(100));
  pace.Record(2, At(110));
  EXPECT_EQ(pace.TimeFor(1), absl::Seconds(5));
  EXPECT_EQ(pace.TimeFor(4), absl::Seconds(20));
}

TEST(PaceTest, CountsTheTimeInWhichNothingWasDoneButNotThatInWhichNothingRan) {
  Pace pace;
  pace.Begin(At(0));
  pace.Record(0, At(6));
  pace.Record(1, At(10));
  EXPECT_EQ(pace.TimeFor(1), absl::Seconds(10));
  pace.Begin(At(1000));
  pace.Record(1, At(1010));
  EXPECT_NEAR(absl::ToDoubleSeconds(pace.TimeFor(1)), 10, 1e-6);
}

TEST(PaceTest, FollowsWhatChanges) {
  Pace pace;
  pace.Begin(At(0));
  for (int i = 1; i <= 50; ++i) pace.Record(1, At(i));
  for (int i = 1; i <= 30; ++i) pace.Record(1, At(50 + 3 * i));
  EXPECT_NEAR(absl::ToDoubleSeconds(pace.TimeFor(1)), 3, 0.15);
}

// --- What runs
// ------------------------------------------------------------------------------------

// A task that costs so much, as the scheduler keeps it.
class Task {
 public:
  explicit Task(double cost, absl::Time deadline = absl::InfiniteFuture(),
                Priority priority = Priority::kNormal) {
    request_.deadline = deadline;
    request_.priority = priority;
    task_.task = request_.Task(clock_);
    task_.task->arrival = At(0);
    task_.cost = cost;
    task_.working_bytes = 1000;
  }

  ScheduledTask& operator*() { return task_; }
  void Do(double cost) { task_.done.fetch_add(cost); }

 private:
  FakeClock clock_;
  TestRequest request_;
  ScheduledTask task_;
};

class RunningTasksTest : public testing::Test {
 protected:
  // So that a unit of cost takes a second.
  void SetUp() override {
    Task first(1);
    tasks_.Add(*first, At(-1));
    first.Do(1);
    tasks_.Remove(*first, At(0));
  }

  RunningTasks tasks_{8};
};

TEST_F(RunningTasksTest, CountWhatRunsByPriority) {
  Task high(1, absl::InfiniteFuture(), Priority::kHigh),
      low(1, absl::InfiniteFuture(), Priority::kLow);
  tasks_.Add(*low, At(0));
  EXPECT_EQ(tasks_.NumAsUrgentAs(Priority::kNormal), 0);
  tasks_.Add(*high, At(0));
  EXPECT_EQ(tasks_.NumAsUrgentAs(Priority::kHigh), 1);
  EXPECT_EQ(tasks_.NumAsUrgentAs(Priority::kNormal), 1);
  EXPECT_EQ(tasks_.NumAsUrgentAs(Priority::kLow), 2);
  EXPECT_EQ(tasks_.working_bytes(), 2000);
  tasks_.Remove(*low, At(1));
  EXPECT_EQ(tasks_.NumAsUrgentAs(Priority::kLow), 1);
  EXPECT_EQ(tasks_.working_bytes(), 1000);
}

TEST_F(RunningTasksTest, OneIsAlwaysTried) {
  Task hopeless(100, At(1));
  EXPECT_EQ(tasks_.OutlookOf(*hopeless, At(0)), Outlook::kGood);
}

TEST_F(RunningTasksTest, NothingIsForeseenWithoutAPace) {
  RunningTasks tasks(8);
  Task running(100), next(100, At(1));
  tasks.Add(*running, At(0));
  EXPECT_EQ(tasks.OutlookOf(*next, At(0)), Outlook::kGood);
}

// Those that run have 2 and 50 left, so a task of 5 beside them ends after 2 + 5 + 5 seconds. A
// quarter of its time is for the answer, so it needs 16.
TEST_F(RunningTasksTest, OneThatJoinsSharesWithWhatIsLeftOfTheOthers) {
  Task nearly_done(10), running(50), late(5, At(15.9)), in_time(5, At(16.1));
  tasks_.Add(*nearly_done, At(0));
  nearly_done.Do(8);
  tasks_.Add(*running, At(0));
  EXPECT_EQ(tasks_.OutlookOf(*late, At(0)), Outlook::kTooLate);
  EXPECT_EQ(tasks_.OutlookOf(*in_time, At(0)), Outlook::kGood);
}

// Of high priority it gets four times what the other one gets: 4 and 1 seconds, and a quarter.
TEST_F(RunningTasksTest, SharesGoByPriority) {
  Task running(10);
  tasks_.Add(*running, At(0));
  for (const double deadline : {6.5, 6.8}) {
    Task high(4, At(deadline), Priority::kHigh);
    EXPECT_EQ(tasks_.OutlookOf(*high, At(0)), deadline < 6.6 ? Outlook::kTooLate : Outlook::kGood);
  }
}

TEST_F(RunningTasksTest, NoneIsMadeLateByOneThatIsNoMoreUrgent) {
  Task running(10, At(20)), next(10), high(10, absl::InfiniteFuture(), Priority::kHigh), little(4);
  tasks_.Add(*running, At(0));
  EXPECT_EQ(tasks_.OutlookOf(*next, At(0)), Outlook::kWouldMakeOthersLate);
  EXPECT_EQ(tasks_.OutlookOf(*high, At(0)), Outlook::kGood);
  EXPECT_EQ(tasks_.OutlookOf(*little, At(0)), Outlook::kGood);
  running.Do(6);
  EXPECT_EQ(tasks_.OutlookOf(*next, At(6)), Outlook::kGood);
}

TEST_F(RunningTasksTest, WhatIsLessUrgentOrLateAnywayIsNotSpared) {
  Task low(10, At(20), Priority::kLow), late(10, At(9)), next(10);
  tasks_.Add(*low, At(0));
  EXPECT_EQ(tasks_.OutlookOf(*next, At(0)), Outlook::kGood);
  tasks_.Remove(*low, At(0));
  tasks_.Add(*late, At(0));
  EXPECT_EQ(tasks_.OutlookOf(*next, At(0)), Outlook::kGood);
}

// Where all are too slow none is done, and that has to be learned too.
TEST_F(RunningTasksTest, WhatWasStoppedHalfDoneCountsForThePace) {
  Task running(1000), next(10, At(1000));
  for (int i = 0; i < 40; ++i) {
    Task stopped(10);
    tasks_.Add(*stopped, At(20 * i));
    stopped.Do(2);  // within 20 seconds
    tasks_.Remove(*stopped, At(20 * (i + 1)));
  }
  tasks_.Add(*running, At(800));
  EXPECT_EQ(tasks_.OutlookOf(*next, At(800)),
            Outlook::kTooLate);  // ten seconds each, and two share
}

// --- A job that is measured ----------------------------------------------------------------------

class StepJob final : public TileJob {
 public:
  explicit StepJob(bool* finished) : finished_(finished) {}
  int num_stages() const override { return 3; }
  std::int64_t num_units(int stage) const override { return stage == 2 ? 0 : stage + 1; }
  std::int64_t unit_cost(int stage) const override { return stage == 0 ? 2 : 4; }
  void RunUnit(int, std::int64_t, Worker&) override {}
  void Finish() override { *finished_ = true; }

 private:
  bool* finished_;
};

class OneWorker final : public Worker {
 public:
  OneWorker() : Worker(0) {}
  void LetOthersRun() override {}
};

TEST(MeasuredJobTest, TellsWhatIsDoneOfTheCost) {
  Task task(50);
  bool finished = false;
  MeasuredJob job(std::make_unique<StepJob>(&finished), *task);
  EXPECT_EQ(job.num_stages(), 3);
  EXPECT_EQ(job.num_units(1), 2);
  EXPECT_EQ(job.unit_cost(1), 4);
  OneWorker worker;
  job.RunUnit(0, 0, worker);
  EXPECT_DOUBLE_EQ((*task).done, 10);
  job.RunUnit(1, 0, worker);
  job.RunUnit(1, 1, worker);
  EXPECT_DOUBLE_EQ((*task).done, 50);
  job.Finish();
  EXPECT_TRUE(finished);
}

TEST(MeasuredJobTest, CountsNothingOnceItIsToStop) {
  Task task(50);
  bool finished = false;
  MeasuredJob job(std::make_unique<StepJob>(&finished), *task);
  OneWorker worker;
  job.RunUnit(0, 0, worker);
  (*task).RequestStop(DropReason::kDeadline);
  job.RunUnit(1, 0, worker);
  EXPECT_DOUBLE_EQ((*task).done, 10);
}

}  // namespace
}  // namespace attend

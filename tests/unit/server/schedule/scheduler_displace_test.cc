// What waits gives its place in a full queue to what is more urgent.
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "server/schedule/scheduler.h"
#include "tests/unit/server/schedule/test_request.h"

namespace attend {
namespace {

using testing::HasSubstr;

struct HighRequest : TestRequest {
  explicit HighRequest(std::int64_t length = 2) : TestRequest(length) {
    priority = Priority::kHigh;
  }
};

struct LowRequest : TestRequest {
  explicit LowRequest(std::int64_t length = 2) : TestRequest(length) { priority = Priority::kLow; }
};

class SchedulerDisplaceTest : public SchedulerTest {
 protected:
  void ExpectRefused(TestRequest& request) {
    EXPECT_EQ(Submit(request).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(request.allocated);
  }

  static void ExpectDisplaced(const TestRequest& request) {
    ASSERT_TRUE(request.HasAnswer());
    EXPECT_EQ(request.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(request.status().message()), HasSubstr("more urgent"));
    EXPECT_EQ(request.stats().batch_size, 0);
    EXPECT_TRUE(request.IsUntouched());
    EXPECT_EQ(request.answers, 1);
  }

  // Once all that was admitted has its answer.
  void ExpectNothingLeft() const {
    const SchedulerLoad load = scheduler_->Load();
    EXPECT_EQ(load.admitted_requests, 0);
    EXPECT_EQ(load.admitted_bytes, 0);
    for (const char* priority : {"high", "normal", "low"}) {
      EXPECT_EQ(Metric(std::string("attend_queue_depth{priority=\"") + priority + "\"}"), "0");
    }
  }
};

TEST_F(SchedulerDisplaceTest, GivesThePlaceOfTheNewestOfALowerPriority) {
  Start({.max_queued_requests = 3});
  Plug plug;
  Hold(plug);
  LowRequest oldest, middle, newest;
  HighRequest high;
  for (LowRequest* request : {&oldest, &middle, &newest}) SubmitOk(*request);
  clock_.Advance(absl::Milliseconds(3));
  SubmitOk(high);
  ExpectDisplaced(newest);
  EXPECT_EQ(newest.stats().queue, absl::Milliseconds(3));
  EXPECT_FALSE(middle.HasAnswer());
  EXPECT_EQ(Dropped("displaced", "low"), "1");
  EXPECT_EQ(Dropped("displaced", "high"), "0");
  EXPECT_EQ(Dropped("queue_full", "high"), "0");
  EXPECT_EQ(Metric("attend_queue_depth{priority=\"low\"}"), "2");
  EXPECT_EQ(scheduler_->Load().admitted_requests, 3);
  plug.LetGo();
  EXPECT_TRUE(oldest.status().ok());
  EXPECT_TRUE(middle.status().ok());
  EXPECT_TRUE(high.status().ok());
  ExpectNothingLeft();
}

TEST_F(SchedulerDisplaceTest, TakesTheLowestPriorityFirst) {
  Start({.max_queued_requests = 3});
  Plug plug;
  Hold(plug);
  LowRequest low;
  TestRequest old_normal, normal;
  HighRequest first, second;
  SubmitOk(low);
  SubmitOk(old_normal);
  SubmitOk(normal);
  SubmitOk(first);
  ExpectDisplaced(low);
  EXPECT_FALSE(normal.HasAnswer());
  SubmitOk(second);
  ExpectDisplaced(normal);
  EXPECT_FALSE(old_normal.HasAnswer());
  EXPECT_EQ(Dropped("displaced", "low"), "1");
  EXPECT_EQ(Dropped("displaced", "normal"), "1");
  plug.LetGo();
  EXPECT_TRUE(old_normal.status().ok());
  EXPECT_TRUE(first.status().ok());
  EXPECT_TRUE(second.status().ok());
  ExpectNothingLeft();
}

TEST_F(SchedulerDisplaceTest, GivesNoPlaceToWhatIsNotMoreUrgent) {
  Start({.max_queued_requests = 2});
  Plug plug;
  Hold(plug);
  HighRequest high, other_high;
  TestRequest normal, other_normal;
  LowRequest low;
  SubmitOk(high);
  SubmitOk(normal);
  ExpectRefused(other_normal);
  ExpectRefused(low);
  EXPECT_EQ(Dropped("queue_full", "normal"), "1");
  EXPECT_EQ(Dropped("queue_full", "low"), "1");
  SubmitOk(other_high);
  ExpectDisplaced(normal);
  plug.LetGo();
  EXPECT_TRUE(high.status().ok());
  EXPECT_TRUE(other_high.status().ok());
  ExpectNothingLeft();
}

TEST_F(SchedulerDisplaceTest, MakesRoomForBytesToo) {
  LowRequest oldest, middle, newest;
  HighRequest high;
  high.message_bytes += oldest.bytes();  // as much as two of them
  Start({.max_queued_bytes = 3 * oldest.bytes()});
  Plug plug;
  Hold(plug);
  for (LowRequest* request : {&oldest, &middle, &newest}) SubmitOk(*request);
  SubmitOk(high);
  ExpectDisplaced(newest);
  ExpectDisplaced(middle);
  EXPECT_FALSE(oldest.HasAnswer());
  EXPECT_EQ(scheduler_->Load().admitted_bytes, 3 * oldest.bytes());
  plug.LetGo();
  EXPECT_TRUE(oldest.status().ok());
  EXPECT_TRUE(high.status().ok());
  ExpectNothingLeft();
}

TEST_F(SchedulerDisplaceTest, DisplacesNoneWhereThatWouldNotMakeRoom) {
  LowRequest low;
  HighRequest high, huge;
  huge.message_bytes += low.bytes();  // it needs the room of two
  Start({.max_queued_bytes = 2 * low.bytes()});
  Plug plug;
  Hold(plug);
  SubmitOk(low);
  SubmitOk(high);
  ExpectRefused(huge);
  EXPECT_FALSE(low.HasAnswer());
  EXPECT_EQ(Dropped("queue_full", "high"), "1");
  EXPECT_EQ(Dropped("displaced", "low"), "0");
  plug.LetGo();
  EXPECT_TRUE(low.status().ok());
  EXPECT_TRUE(high.status().ok());
  ExpectNothingLeft();
}

TEST_F(SchedulerDisplaceTest, LeavesWhatHasWaitedLong) {
  Start({.max_queued_requests = 2, .max_priority_wait = absl::Seconds(1)});
  Plug plug;
  Hold(plug);
  LowRequest aged, low;
  HighRequest high, refused;
  SubmitOk(aged);
  clock_.Advance(absl::Milliseconds(1));
  SubmitOk(low);
  clock_.Advance(absl::Milliseconds(999));
  SubmitOk(high);
  ExpectDisplaced(low);
  ExpectRefused(refused);
  EXPECT_FALSE(aged.HasAnswer());
  plug.LetGo();
  EXPECT_TRUE(aged.status().ok());
  EXPECT_TRUE(high.status().ok());
  ExpectNothingLeft();
}

TEST_F(SchedulerDisplaceTest, CountsNoBytesOfWhatHasWaitedLong) {
  LowRequest aged, low;
  HighRequest high;
  high.message_bytes += aged.bytes();  // it needs the room of both
  Start({.max_queued_bytes = 2 * aged.bytes(), .max_priority_wait = absl::Seconds(1)});
  Plug plug;
  Hold(plug);
  SubmitOk(aged);
  clock_.Advance(absl::Milliseconds(1));
  SubmitOk(low);
  clock_.Advance(absl::Milliseconds(999));
  ExpectRefused(high);
  EXPECT_FALSE(low.HasAnswer());
  plug.LetGo();
  EXPECT_TRUE(aged.status().ok());
  EXPECT_TRUE(low.status().ok());
}

TEST_F(SchedulerDisplaceTest, DisplacesNoneWhereTheFirstComesFirst) {
  Start({.max_queued_requests = 1, .max_priority_wait = absl::ZeroDuration()});
  Plug plug;
  Hold(plug);
  LowRequest low;
  HighRequest high;
  SubmitOk(low);
  ExpectRefused(high);
  plug.LetGo();
  EXPECT_TRUE(low.status().ok());
}

TEST_F(SchedulerDisplaceTest, TakesFromAllSizesAndNothingThatRuns) {
  LowRequest running(512), small, large(512);
  HighRequest first, second, refused;
  Start({.max_queued_requests = 3, .max_running_bytes = WorkingBytes(running.Problem())});
  Plug plug;
  Hold(plug);
  for (LowRequest* request : {&running, &small, &large}) SubmitOk(*request);
  ASSERT_EQ(scheduler_->Load().running, 1);
  SubmitOk(first);
  ExpectDisplaced(large);
  SubmitOk(second);
  ExpectDisplaced(small);
  ExpectRefused(refused);
  plug.LetGo();
  EXPECT_TRUE(running.status().ok());
  EXPECT_TRUE(first.status().ok());
  EXPECT_TRUE(second.status().ok());
  ExpectNothingLeft();
}

TEST_F(SchedulerDisplaceTest, PrefersToDropWhatExpired) {
  Start({.max_queued_requests = 2});
  Plug plug;
  Hold(plug);
  HighRequest expired, high;
  LowRequest low;
  expired.deadline = clock_.Now() + absl::Milliseconds(5);
  SubmitOk(expired);
  SubmitOk(low);
  clock_.Advance(absl::Milliseconds(5));
  SubmitOk(high);
  EXPECT_EQ(expired.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(low.HasAnswer());
  plug.LetGo();
  EXPECT_TRUE(low.status().ok());
  EXPECT_TRUE(high.status().ok());
}

TEST_F(SchedulerDisplaceTest, AnswersWithoutTheLock) {
  Start({.max_queued_requests = 1});
  Plug plug;
  Hold(plug);
  LowRequest low, again;
  HighRequest high;
  low.on_done = [&] {
    EXPECT_EQ(scheduler_->Load().admitted_requests, 1);  // the one that took its place
    ExpectRefused(again);
  };
  SubmitOk(low);
  SubmitOk(high);
  ExpectDisplaced(low);
  plug.LetGo();
  EXPECT_TRUE(high.status().ok());
}

TEST_F(SchedulerDisplaceTest, CountsWhatIsBeingSubmitted) {
  Start({.max_queued_requests = 1});
  Plug plug;
  Hold(plug);
  LowRequest low;
  HighRequest early, high;
  TestRequest normal;
  low.on_allocate = [&] { ExpectRefused(early); };  // it does not wait yet
  SubmitOk(low);
  high.on_allocate = [&] {
    ExpectDisplaced(low);
    EXPECT_EQ(scheduler_->Load().admitted_requests, 1);
    EXPECT_EQ(scheduler_->Load().admitted_bytes, high.bytes());
    ExpectRefused(normal);
  };
  SubmitOk(high);
  plug.LetGo();
  EXPECT_TRUE(high.status().ok());
  ExpectNothingLeft();
}

TEST_F(SchedulerDisplaceTest, GivesThePlaceBackWhenMemoryIsShort) {
  Start({.max_queued_requests = 1});
  Plug plug;
  Hold(plug);
  LowRequest low, next;
  HighRequest high;
  SubmitOk(low);
  std::unique_ptr<AttentionTask> task = high.Task(clock_);
  task->allocate_outputs = []() -> absl::StatusOr<AttentionOutputs> {
    return absl::ResourceExhaustedError("no memory for this one");
  };
  EXPECT_EQ(scheduler_->Submit(task).status().message(), "no memory for this one");
  ExpectDisplaced(low);
  EXPECT_EQ(Dropped("no_memory", "high"), "1");
  SubmitOk(next);
  plug.LetGo();
  EXPECT_TRUE(next.status().ok());
  ExpectNothingLeft();
}

}  // namespace
}  // namespace attend

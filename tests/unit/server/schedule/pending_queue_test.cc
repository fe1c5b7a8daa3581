#include "server/schedule/pending_queue.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/tensor.h"

namespace attend {
namespace {

class PendingQueueTest : public testing::Test {
 protected:
  static constexpr std::int64_t kBytes = 10;  // of each task

  static absl::Time At(int seconds) { return absl::FromUnixSeconds(seconds); }

  TaskId Add(int arrival, Priority priority = Priority::kNormal,
             absl::Time deadline = absl::InfiniteFuture(), std::int64_t flops = 1) {
    AttentionArgs args;
    args.query = args.key = args.value = input_.view();
    auto task =
        std::make_unique<AttentionTask>(AttentionTask{.problem = *AttentionProblem::Create(args)});
    task->arrival = At(arrival);
    task->priority = priority;
    task->deadline = deadline;
    auto waiting = std::make_unique<ScheduledTask>();
    waiting->id = ++last_id_;
    waiting->flops = flops;
    waiting->bytes = kBytes;
    queue_.Add(std::move(waiting), task);
    EXPECT_EQ(task, nullptr);
    return last_id_;
  }

  const Tensor input_ = Tensor::FromFloats(DType::kFloat32, {1, 1, 1, 1}, std::vector<float>{1});
  PendingQueue queue_{absl::Seconds(10)};
  TaskId last_id_ = 0;
};

TEST_F(PendingQueueTest, IsEmptyAtFirst) {
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.Next(At(0)), nullptr);
  EXPECT_EQ(queue_.Any(), 0);
  EXPECT_EQ(queue_.FirstExpired(At(1'000'000)), 0);
  EXPECT_EQ(queue_.FirstDeadline(), absl::InfiniteFuture());
  EXPECT_EQ(queue_.OldestArrival(), absl::InfiniteFuture());
  EXPECT_TRUE(queue_.Extract(1).empty());
}

TEST_F(PendingQueueTest, TakesPrioritiesInOrder) {
  const TaskId low = Add(0, Priority::kLow);
  const TaskId normal = Add(1, Priority::kNormal);
  const TaskId high = Add(2, Priority::kHigh);
  EXPECT_EQ(queue_.size_of(Priority::kLow), 1);
  for (const TaskId id : {high, normal, low}) {
    ASSERT_EQ(queue_.Next(At(3))->id, id);
    EXPECT_FALSE(queue_.Extract(id).empty());
  }
  EXPECT_TRUE(queue_.empty());
}

TEST_F(PendingQueueTest, TakesWhatHasAgedFirst) {
  const TaskId low = Add(0, Priority::kLow);
  const TaskId high = Add(1, Priority::kHigh);
  EXPECT_EQ(queue_.Next(At(9))->id, high);
  EXPECT_EQ(queue_.Next(At(10))->id, low);
}

TEST_F(PendingQueueTest, KnowsTheFirstDeadlineAndForgetsThoseWhoLeft) {
  Add(0);
  const TaskId late = Add(1, Priority::kHigh, At(30));
  const TaskId soon = Add(2, Priority::kLow, At(20));
  EXPECT_EQ(queue_.FirstDeadline(), At(20));
  EXPECT_EQ(queue_.FirstExpired(At(19)), 0);
  EXPECT_EQ(queue_.FirstExpired(At(20)), soon);
  queue_.Extract(soon);
  EXPECT_EQ(queue_.FirstExpired(At(30)), late);
  queue_.Extract(late);
  EXPECT_EQ(queue_.FirstDeadline(), absl::InfiniteFuture());
}

TEST_F(PendingQueueTest, CountsWhatWaits) {
  const TaskId first = Add(5, Priority::kNormal, absl::InfiniteFuture(), 100);
  Add(6, Priority::kHigh, absl::InfiniteFuture(), 20);
  EXPECT_EQ(queue_.size(), 2);
  EXPECT_EQ(queue_.flops(), 120);
  EXPECT_EQ(queue_.OldestArrival(), At(5));
  queue_.Extract(first);
  EXPECT_EQ(queue_.size(), 1);
  EXPECT_EQ(queue_.flops(), 20);
  EXPECT_EQ(queue_.OldestArrival(), At(6));
}

TEST_F(PendingQueueTest, DisplacesTheNewestOfAPriorityAndNothingThatHasAged) {
  Add(0, Priority::kLow);
  const TaskId older = Add(5, Priority::kLow);
  const TaskId newest = Add(6, Priority::kLow);
  Add(7, Priority::kHigh);
  EXPECT_EQ(queue_.bytes_of(Priority::kLow), 3 * kBytes);
  EXPECT_EQ(queue_.NextToDisplace(Priority::kNormal, At(10)), nullptr);
  ASSERT_EQ(queue_.NextToDisplace(Priority::kLow, At(10))->id, newest);
  EXPECT_EQ(queue_.DisplaceableBytes(Priority::kLow, At(9), 1000), 3 * kBytes);
  EXPECT_EQ(queue_.DisplaceableBytes(Priority::kLow, At(10), 1000), 2 * kBytes);
  EXPECT_EQ(queue_.DisplaceableBytes(Priority::kLow, At(10), kBytes), kBytes);
  queue_.Extract(newest);
  EXPECT_EQ(queue_.bytes_of(Priority::kLow), 2 * kBytes);
  ASSERT_EQ(queue_.NextToDisplace(Priority::kLow, At(14))->id, older);
  EXPECT_EQ(queue_.NextToDisplace(Priority::kLow, At(15)), nullptr);
}

}  // namespace
}  // namespace attend

// Whose tile is next. Nothing runs here: the tests take units and say that they have run.
#include "core/executor/tile_queue.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace attend {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kLongCost = kShortUnitCost + 1;

// Stages of units that all cost the same.
class StagedJob final : public TileJob {
 public:
  StagedJob(std::vector<std::int64_t> units, std::int64_t cost)
      : units_(std::move(units)), cost_(cost) {}

  int num_stages() const override { return static_cast<int>(units_.size()); }
  std::int64_t num_units(int stage) const override { return units_.at(stage); }
  std::int64_t unit_cost(int) const override { return cost_; }
  void RunUnit(int, std::int64_t, Worker&) override {}
  void Finish() override {}

 private:
  const std::vector<std::int64_t> units_;
  const std::int64_t cost_;
};

class TileQueueTest : public testing::Test {
 protected:
  // Takes units and says at once that they have run, as one thread would.
  TileJob* RunNext() {
    const std::optional<TileQueue::Units> units = queue_.Pop();
    if (!units.has_value()) return nullptr;
    queue_.Done(*units);
    return units->job;
  }

  // How many of the next `count` turns each job got.
  std::map<TileJob*, int> TurnsOf(int count) {
    std::map<TileJob*, int> turns;
    for (int i = 0; i < count; ++i) ++turns[RunNext()];
    return turns;
  }

  TileQueue queue_{2};
};

TEST_F(TileQueueTest, HasNothingToRunAtFirst) {
  EXPECT_FALSE(queue_.Pop().has_value());
  EXPECT_FALSE(queue_.PopShort(1e18).has_value());
  EXPECT_EQ(queue_.num_ready(), 0);
}

TEST_F(TileQueueTest, DoesNotTakeAJobWithoutUnits) {
  StagedJob none({}, 1);
  StagedJob empty({0, 0}, 1);
  EXPECT_EQ(queue_.Add(none, {}), 0);
  EXPECT_EQ(queue_.Add(empty, {}), 0);
  EXPECT_FALSE(queue_.Pop().has_value());
}

TEST_F(TileQueueTest, GivesEachUnitOnceAndTellsTheLast) {
  StagedJob job({3}, kLongCost);
  ASSERT_NE(queue_.Add(job, {}), 0);
  EXPECT_EQ(queue_.num_ready(), 3);
  std::vector<TileQueue::Units> taken;
  for (std::int64_t unit = 0; unit < 3; ++unit) {
    taken.push_back(*queue_.Pop());
    EXPECT_EQ(taken.back().begin, unit);
    EXPECT_EQ(taken.back().end, unit + 1);
  }
  EXPECT_FALSE(queue_.Pop().has_value());
  EXPECT_FALSE(queue_.Done(taken[2]));
  EXPECT_FALSE(queue_.Done(taken[0]));
  EXPECT_TRUE(queue_.Done(taken[1]));
}

TEST_F(TileQueueTest, BeginsAStageWhenTheOneBeforeHasRun) {
  StagedJob job({0, 2, 0, 1, 0}, kLongCost);
  ASSERT_NE(queue_.Add(job, {}), 0);
  const TileQueue::Units first = *queue_.Pop();
  const TileQueue::Units second = *queue_.Pop();
  EXPECT_EQ(first.stage, 1);
  EXPECT_FALSE(queue_.Done(second));
  EXPECT_FALSE(queue_.Pop().has_value());
  EXPECT_FALSE(queue_.Done(first));
  const TileQueue::Units last = *queue_.Pop();
  EXPECT_EQ(last.stage, 3);
  EXPECT_TRUE(queue_.Done(last));
}

TEST_F(TileQueueTest, SharesEquallyByCostAndNotByUnits) {
  StagedJob cheap({1000}, 2 * kLongCost);
  StagedJob dear({1000}, 6 * kLongCost);
  ASSERT_NE(queue_.Add(cheap, {}), 0);
  ASSERT_NE(queue_.Add(dear, {}), 0);
  std::map<TileJob*, int> turns = TurnsOf(400);
  EXPECT_EQ(turns[&cheap], 300);
  EXPECT_EQ(turns[&dear], 100);
}

TEST_F(TileQueueTest, SharesByWeight) {
  StagedJob light({1000}, kLongCost);
  StagedJob heavy({1000}, kLongCost);
  ASSERT_NE(queue_.Add(light, {.weight = 1}), 0);
  ASSERT_NE(queue_.Add(heavy, {.weight = 4}), 0);
  std::map<TileJob*, int> turns = TurnsOf(500);
  EXPECT_EQ(turns[&light], 100);
  EXPECT_EQ(turns[&heavy], 400);
}

TEST_F(TileQueueTest, RunsJobsOfOneStandingInTheOrderInWhichTheyCame) {
  StagedJob first({1}, kLongCost), second({1}, kLongCost), third({1}, kLongCost);
  for (TileJob* job : {&first, &second, &third}) ASSERT_NE(queue_.Add(*job, {}), 0);
  std::vector<TileJob*> order;
  for (int i = 0; i < 3; ++i) order.push_back(RunNext());
  EXPECT_THAT(order, ElementsAre(&first, &second, &third));
}

TEST_F(TileQueueTest, GivesNoClaimForTheTimeBeforeAJobCame) {
  StagedJob old({1000}, kLongCost);
  ASSERT_NE(queue_.Add(old, {}), 0);
  TurnsOf(100);
  StagedJob fresh({1000}, kLongCost);
  ASSERT_NE(queue_.Add(fresh, {}), 0);
  std::map<TileJob*, int> turns = TurnsOf(100);
  EXPECT_NEAR(turns[&old], 50, 1);
}

TEST_F(TileQueueTest, GivesNoClaimForTheTimeThatAStageWasWaitedFor) {
  StagedJob staged({1, 1000}, kLongCost);
  StagedJob other({1000}, kLongCost);
  ASSERT_NE(queue_.Add(staged, {}), 0);
  ASSERT_NE(queue_.Add(other, {}), 0);
  const TileQueue::Units slow = *queue_.Pop();
  ASSERT_EQ(slow.job, &staged);
  EXPECT_EQ(TurnsOf(100)[&other], 100);
  queue_.Done(slow);
  EXPECT_NEAR(TurnsOf(100)[&staged], 50, 1);
}

TEST_F(TileQueueTest, LetsASmallJobGoBeforeTheNextUnitOfALargeOne) {
  StagedJob large({1000}, 100 * kLongCost);
  ASSERT_NE(queue_.Add(large, {}), 0);
  RunNext();
  for (int i = 0; i < 10; ++i) {
    StagedJob small({1}, 1);
    ASSERT_NE(queue_.Add(small, {}), 0);
    EXPECT_EQ(RunNext(), &small);
    EXPECT_EQ(RunNext(), &large);
  }
}

TEST_F(TileQueueTest, GivesJobsOfOneShareTogetherWhatOneJobGets) {
  FairShare share;
  StagedJob large({1000}, kLongCost);
  ASSERT_NE(queue_.Add(large, {}), 0);
  int large_turns = 0;
  for (int i = 0; i < 100; ++i) {
    StagedJob next({1}, kLongCost);
    ASSERT_NE(queue_.Add(next, {.share = &share}), 0);
    while (RunNext() == &large) ++large_turns;
  }
  // Each on its own would go before every unit of the large one.
  EXPECT_NEAR(large_turns, 100, 1);
}

TEST_F(TileQueueTest, TakesSeveralCheapUnitsAtATimeButLeavesSomeToOthers) {
  StagedJob job({1000}, 1);
  ASSERT_NE(queue_.Add(job, {}), 0);
  const TileQueue::Units units = *queue_.Pop();
  EXPECT_EQ(units.begin, 0);
  EXPECT_EQ(units.end, 250);  // of two threads
  EXPECT_EQ(queue_.num_ready(), 750);
  queue_.Done(units);
  std::int64_t next = units.end;
  while (const auto more = queue_.Pop()) {
    EXPECT_EQ(more->begin, next);
    next = more->end;
    queue_.Done(*more);
  }
  EXPECT_EQ(next, 1000);
}

TEST_F(TileQueueTest, LetsOnlyShortUnitsInWhoseTurnItIs) {
  StagedJob running({10}, 100 * kLongCost);
  ASSERT_NE(queue_.Add(running, {}), 0);
  const TileQueue::Units units = *queue_.Pop();
  StagedJob other_long({10}, kLongCost), quick({1}, kShortUnitCost);
  ASSERT_NE(queue_.Add(other_long, {}), 0);
  EXPECT_EQ(queue_.num_ready_short(), 0);
  EXPECT_FALSE(queue_.PopShort(units.claim).has_value());
  ASSERT_NE(queue_.Add(quick, {}), 0);
  EXPECT_EQ(queue_.num_ready_short(), 1);
  EXPECT_FALSE(queue_.PopShort(0).has_value());  // of somebody whose turn came before
  const std::optional<TileQueue::Units> in = queue_.PopShort(units.claim);
  ASSERT_TRUE(in.has_value());
  EXPECT_EQ(in->job, &quick);
  EXPECT_TRUE(queue_.Done(*in));
  EXPECT_FALSE(queue_.PopShort(units.claim).has_value());
}

TEST_F(TileQueueTest, LetsShortUnitsInOnlyAsLongAsItIsTheirTurn) {
  StagedJob running({10}, 10 * kLongCost);
  StagedJob quick({1000}, kShortUnitCost);
  ASSERT_NE(queue_.Add(running, {}), 0);
  const TileQueue::Units units = *queue_.Pop();
  ASSERT_NE(queue_.Add(quick, {}), 0);
  int let_in = 0;
  while (const auto in = queue_.PopShort(units.claim)) {
    ++let_in;
    queue_.Done(*in);
  }
  EXPECT_NEAR(let_in, 10, 1);
}

TEST_F(TileQueueTest, TakesAJobBackThatHasNotBegun) {
  StagedJob taken_back({2}, kLongCost), stays({1}, 1);
  const std::uint64_t number = queue_.Add(taken_back, {});
  ASSERT_NE(queue_.Add(stays, {}), 0);
  EXPECT_TRUE(queue_.Remove(number));
  EXPECT_EQ(queue_.num_ready(), 1);
  EXPECT_EQ(queue_.num_ready_short(), 1);
  EXPECT_EQ(RunNext(), &stays);
  EXPECT_EQ(RunNext(), nullptr);
  EXPECT_FALSE(queue_.Remove(number));
}

TEST_F(TileQueueTest, TakesNoJobBackThatHasBegun) {
  StagedJob job({1, 1}, 1);
  const std::uint64_t number = queue_.Add(job, {});
  const TileQueue::Units first = *queue_.Pop();
  EXPECT_FALSE(queue_.Remove(number));
  EXPECT_FALSE(queue_.Done(first));
  EXPECT_FALSE(queue_.Remove(number));  // between its stages
  EXPECT_TRUE(queue_.Done(*queue_.Pop()));
  EXPECT_FALSE(queue_.Remove(number));
  StagedJob later({1}, 1);
  EXPECT_NE(queue_.Add(later, {}), number);
}

TEST_F(TileQueueTest, TakesShortAndLongUnitsInOneOrder) {
  StagedJob long_one({1}, kLongCost), short_one({1}, 1), long_two({1}, kLongCost),
      short_two({1}, 1);
  for (StagedJob* job : {&long_one, &short_one, &long_two, &short_two}) {
    ASSERT_NE(queue_.Add(*job, {}), 0);
  }
  for (StagedJob* job : {&long_one, &short_one, &long_two, &short_two}) {
    EXPECT_EQ(RunNext(), job);
  }
}

}  // namespace
}  // namespace attend

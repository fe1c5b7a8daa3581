#include "client/cpp/timers.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"

namespace attend::client_internal {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Clock = Timers::Clock;

TEST(TimersTest, RunInTheOrderOfTheirTimes) {
  std::vector<int> ran;  // on the one thread of the timers
  absl::Notification last;
  Timers timers;
  const Clock::time_point start = Clock::now();
  timers.Schedule(start + milliseconds(20), [&] {
    ran.push_back(3);
    EXPECT_GE(Clock::now(), start + milliseconds(20));
    last.Notify();
  });
  timers.Schedule(start + milliseconds(10), [&] { ran.push_back(1); });
  timers.Schedule(start + milliseconds(10), [&] { ran.push_back(2); });
  last.WaitForNotification();
  EXPECT_THAT(ran, ::testing::ElementsAre(1, 2, 3));
}

TEST(TimersTest, WhatIsCancelledNeverRunsAndLetsGoOfWhatItHeld) {
  std::atomic<bool> ran{false};
  absl::Notification last;
  Timers timers;
  const auto held = std::make_shared<int>();
  const Timers::Id id =
      timers.Schedule(Clock::now() + milliseconds(5), [&ran, held] { ran = true; });
  timers.Cancel(id);
  timers.Cancel(id);
  timers.Cancel(Timers::Id());
  EXPECT_EQ(held.use_count(), 1);
  timers.Schedule(Clock::now() + milliseconds(10), [&last] { last.Notify(); });
  last.WaitForNotification();
  EXPECT_FALSE(ran);
}

TEST(TimersTest, MayScheduleFromATimer) {
  absl::Notification second;
  Timers timers;
  timers.Schedule(Clock::now(), [&] { timers.Schedule(Clock::now(), [&] { second.Notify(); }); });
  second.WaitForNotification();
}

TEST(TimersTest, GoWithoutRunningWhatIsFarAway) {
  const auto held = std::make_shared<int>();
  {
    Timers timers;
    timers.Schedule(Clock::now() + hours(1), [held] { ADD_FAILURE(); });
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace attend::client_internal

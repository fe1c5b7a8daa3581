#include "server/rpc/periodic_alarm.h"

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace attend {
namespace {

TEST(PeriodicAlarmTest, RingsAgainAndAgain) {
  std::atomic<int> rings{0};
  absl::Notification five;
  const absl::Time start = absl::Now();
  {
    const PeriodicAlarm alarm(absl::Milliseconds(5), [&] {
      if (++rings == 5) five.Notify();
    });
    five.WaitForNotification();
  }
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(24));
}

TEST(PeriodicAlarmTest, EndsAtOnceHoweverLongThePeriod) {
  std::atomic<int> rings{0};
  {
    const PeriodicAlarm alarm(absl::Hours(24 * 365), [&] { ++rings; });
  }
  EXPECT_EQ(rings, 0);
}

TEST(PeriodicAlarmTest, WaitsInTheEndForACallThatGoesOn) {
  absl::Notification begun;
  absl::Notification may_end;
  std::atomic<bool> over{false};
  auto alarm = std::make_unique<PeriodicAlarm>(absl::Milliseconds(1), [&] {
    if (begun.HasBeenNotified()) return;
    begun.Notify();
    may_end.WaitForNotification();
    over = true;
  });
  begun.WaitForNotification();
  absl::Notification gone;
  std::thread ending([&] {
    alarm.reset();
    gone.Notify();
  });
  EXPECT_FALSE(gone.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  may_end.Notify();
  ending.join();
  EXPECT_TRUE(over);
}

// As gRPC's threads would find it if a server were made and unmade under load.
TEST(PeriodicAlarmTest, MayEndAtAnyMoment) {
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> rings{0};
    const PeriodicAlarm alarm(absl::Microseconds(i % 20 + 1), [&] { ++rings; });
    while (i % 3 == 0 && rings == 0) {
    }
  }
}

}  // namespace
}  // namespace attend

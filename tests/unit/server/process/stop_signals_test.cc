#include "server/process/stop_signals.h"

#include <csignal>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/synchronization/notification.h"
#include "server/schedule/clock.h"

namespace attend {
namespace {

class StopSignalsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { StopSignals::Block(); }

  const Logger logger_ = MakeStderrLogger(spdlog::level::warn, LogLines::kText);
};

TEST_F(StopSignalsTest, ReportsTheFirstSignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    StopSignals signals(absl::Hours(1), logger_);
    const absl::Time before = MonotonicClock().Now();
    kill(getpid(), signal);
    const absl::Time first = signals.WaitForFirst();
    EXPECT_GE(first, before);
    EXPECT_LE(first, MonotonicClock().Now());
  }
}

TEST_F(StopSignalsTest, ASecondSignalHurries) {
  absl::Notification hurried;
  StopSignals signals(absl::Hours(1), logger_);
  signals.OnSecond([&hurried] { hurried.Notify(); });
  kill(getpid(), SIGTERM);
  signals.WaitForFirst();
  EXPECT_FALSE(hurried.HasBeenNotified());
  kill(getpid(), SIGINT);
  hurried.WaitForNotification();
}

TEST_F(StopSignalsTest, TheWatchdogEndsADrainThatHangs) {
  // Forks and starts over, since another thread may hold any lock at the time of a plain fork.
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        StopSignals signals(-absl::Hours(1), logger_);
        kill(getpid(), SIGTERM);
        absl::Notification never;
        never.WaitForNotification();
      },
      ::testing::ExitedWithCode(1), "the drain hangs");
}

TEST_F(StopSignalsTest, TheWatchdogEndsWhatHangsAfterTheLastAnswerAsASuccess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        StopSignals signals(absl::Hours(1), logger_);
        kill(getpid(), SIGTERM);
        signals.WaitForFirst();
        signals.Answered();
        absl::Notification never;
        never.WaitForNotification();
      },
      ::testing::ExitedWithCode(0), "every request is answered");
}

}  // namespace
}  // namespace attend

#include "server/observe/recent_activity.h"

#include <gtest/gtest.h>
#include <limits>

namespace attend {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

ActivityTotals Totals(double requests, std::vector<std::pair<double, double>> within = {}) {
  return {.requests = requests,
          .ok = requests / 2,
          .tokens = requests * 3,
          .flops = requests * 4,
          .received_bytes = requests * 5,
          .sent_bytes = requests * 6,
          .within_seconds = std::move(within)};
}

TEST(RecentActivity, IsWhatHappenedSinceTheStartAtFirst) {
  RecentActivity recent(At(0));
  const Activity activity = recent.Look(At(200), Totals(1000));
  EXPECT_EQ(activity.seconds, 200);
  EXPECT_EQ(activity.requests_per_second, 5);
  EXPECT_EQ(activity.ok_per_second, 2.5);
  EXPECT_EQ(activity.tokens_per_second, 15);
  EXPECT_EQ(activity.flops_per_second, 20);
  EXPECT_EQ(activity.received_bytes_per_second, 25);
  EXPECT_EQ(activity.sent_bytes_per_second, 30);
  EXPECT_EQ(activity.p50_seconds, 0);
}

TEST(RecentActivity, IsTheLastMinuteForWhoLooksOften) {
  RecentActivity recent(At(0));
  // One request a second for ten minutes, then ten.
  for (int second = 10; second <= 600; second += 10) recent.Look(At(second), Totals(second));
  Activity activity;
  for (int second = 610; second <= 660; second += 10) {
    activity = recent.Look(At(second), Totals(600 + (second - 600) * 10));
  }
  EXPECT_EQ(activity.seconds, 60);
  EXPECT_EQ(activity.requests_per_second, 10);
}

TEST(RecentActivity, IsWhatHappenedSinceTheLastLookForWhoLooksSeldom) {
  RecentActivity recent(At(0));
  recent.Look(At(100), Totals(1000));
  const Activity activity = recent.Look(At(1100), Totals(3000));
  EXPECT_EQ(activity.seconds, 1000);
  EXPECT_EQ(activity.requests_per_second, 2);
}

TEST(RecentActivity, SurvivesTwoLooksAtOneMoment) {
  RecentActivity recent(At(0));
  EXPECT_EQ(recent.Look(At(0), Totals(0)).requests_per_second, 0);
  recent.Look(At(50), Totals(100));
  EXPECT_EQ(recent.Look(At(50), Totals(100)).requests_per_second, 2);
}

TEST(RecentActivity, InterpolatesLatenciesOfTheStretchAlone) {
  RecentActivity recent(At(0));
  // A thousand slow ones long ago.
  recent.Look(At(100), Totals(1000, {{0.1, 0}, {0.2, 0}, {0.4, 1000}, {kInfinity, 1000}}));
  const Activity activity =
      recent.Look(At(200), Totals(1100, {{0.1, 50}, {0.2, 90}, {0.4, 1099}, {kInfinity, 1100}}));
  EXPECT_DOUBLE_EQ(activity.p50_seconds, 0.1);
  EXPECT_DOUBLE_EQ(activity.p90_seconds, 0.2);
  EXPECT_DOUBLE_EQ(activity.p99_seconds, 0.4);
}

TEST(RecentActivity, GivesTheLastBoundForWhatIsBeyondIt) {
  RecentActivity recent(At(0));
  const Activity activity = recent.Look(At(10), Totals(10, {{0.1, 1}, {kInfinity, 10}}));
  EXPECT_DOUBLE_EQ(activity.p99_seconds, 0.1);
}

}  // namespace
}  // namespace attend

// When calls start: arrivals, and the rules of the closed and the open loop. Nothing here waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "client/load/arrivals.h"
#include "client/load/pacing.h"

namespace attend::load {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

std::vector<nanoseconds> Take(Arrivals arrivals, int count) {
  std::vector<nanoseconds> times;
  for (int i = 0; i < count; ++i) times.push_back(arrivals.Next());
  return times;
}

TEST(ArrivalsTest, ConstantRateDoesNotDrift) {
  const std::vector<nanoseconds> times = Take(Arrivals(ArrivalKind::kConstant, 3, 1), 3'000'001);
  EXPECT_EQ(times[0], nanoseconds(0));
  EXPECT_EQ(times[1], nanoseconds(333'333'333));
  EXPECT_EQ(times[3'000'000], seconds(1'000'000));
}

TEST(ArrivalsTest, PoissonGapsHaveTheMeanAndTheSpreadOfAnExponential) {
  constexpr int kCount = 100'000;
  constexpr double kRate = 1000;
  const std::vector<nanoseconds> times = Take(Arrivals(ArrivalKind::kPoisson, kRate, 7), kCount);
  double sum = 0;
  double squares = 0;
  for (int i = 1; i < kCount; ++i) {
    ASSERT_GE(times[i], times[i - 1]);
    const double gap = std::chrono::duration<double>(times[i] - times[i - 1]).count() * kRate;
    sum += gap;
    squares += gap * gap;
  }
  // Five standard errors: of the mean 1 / sqrt(n), of the second moment sqrt(20 / n).
  EXPECT_NEAR(sum / kCount, 1, 0.016);
  EXPECT_NEAR(squares / kCount, 2, 0.071);
}

TEST(ArrivalsTest, TheSameSeedGivesTheSameTimes) {
  const auto times = [](std::uint64_t seed) {
    return Take(Arrivals(ArrivalKind::kPoisson, 10, seed), 100);
  };
  EXPECT_EQ(times(3), times(3));
  EXPECT_NE(times(3), times(4));
}

TEST(ClosedLoopTest, KeepsItsCallsInFlightUntilTheEnd) {
  ClosedLoop loop(2, seconds(1));
  Step step = loop.Next(milliseconds(5), 0);
  EXPECT_EQ(step.kind, Step::Kind::kSend);
  EXPECT_EQ(step.time, milliseconds(5));
  EXPECT_EQ(loop.Next(milliseconds(6), 1).kind, Step::Kind::kSend);
  step = loop.Next(milliseconds(7), 2);
  EXPECT_EQ(step.kind, Step::Kind::kWait);
  EXPECT_EQ(step.time, seconds(1));
  EXPECT_EQ(loop.Next(seconds(1), 1).kind, Step::Kind::kEnd);
}

TEST(OpenLoopTest, WaitsForTheTimeAndSendsThen) {
  OpenLoop loop(Arrivals(ArrivalKind::kConstant, 100, 1), 10, seconds(1));
  EXPECT_EQ(loop.Next(nanoseconds(0), 0).kind, Step::Kind::kSend);
  for (int i = 0; i < 3; ++i) {  // asking again does not skip an arrival
    const Step wait = loop.Next(microseconds(9'000 + i), 0);
    EXPECT_EQ(wait.kind, Step::Kind::kWait);
    EXPECT_EQ(wait.time, milliseconds(10));
  }
  const Step send = loop.Next(microseconds(10'050), 0);
  EXPECT_EQ(send.kind, Step::Kind::kSend);
  EXPECT_EQ(send.time, milliseconds(10));  // not the time at which it was sent
}

TEST(OpenLoopTest, WhatAStallHeldUpKeepsItsIntendedTimes) {
  OpenLoop loop(Arrivals(ArrivalKind::kConstant, 10, 1), 100, seconds(10));
  const seconds after_stall(1);
  std::vector<nanoseconds> intended;
  Step step = loop.Next(after_stall, 0);
  while (step.kind == Step::Kind::kSend) {
    intended.push_back(step.time);
    step = loop.Next(after_stall, 0);
  }
  ASSERT_EQ(intended.size(), 11u);
  for (int i = 0; i <= 10; ++i) EXPECT_EQ(intended[i], milliseconds(100 * i));
  EXPECT_EQ(step.time, milliseconds(1100));
}

TEST(OpenLoopTest, DropsWhatWouldExceedTheBoundAndGoesOn) {
  OpenLoop loop(Arrivals(ArrivalKind::kConstant, 10, 1), 3, seconds(1));
  EXPECT_EQ(loop.Next(milliseconds(0), 2).kind, Step::Kind::kSend);
  const Step drop = loop.Next(milliseconds(100), 3);
  EXPECT_EQ(drop.kind, Step::Kind::kDrop);
  EXPECT_EQ(drop.time, milliseconds(100));
  EXPECT_EQ(loop.Next(milliseconds(200), 2).kind, Step::Kind::kSend);
}

TEST(OpenLoopTest, EndsBeforeTheFirstArrivalPastTheEnd) {
  OpenLoop loop(Arrivals(ArrivalKind::kConstant, 10, 1), 3, milliseconds(150));
  EXPECT_EQ(loop.Next(milliseconds(100), 0).kind, Step::Kind::kSend);
  EXPECT_EQ(loop.Next(milliseconds(100), 0).kind, Step::Kind::kSend);
  EXPECT_EQ(loop.Next(milliseconds(120), 0).kind, Step::Kind::kEnd);
  EXPECT_EQ(loop.Next(milliseconds(500), 0).kind, Step::Kind::kEnd);
}

}  // namespace
}  // namespace attend::load

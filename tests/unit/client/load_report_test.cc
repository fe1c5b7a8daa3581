// What is made of calls that have ended: quantiles, rates, codes, the saturation of a sweep.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "client/load/recorder.h"
#include "client/load/report.h"
#include "client/load/samples.h"
#include "client/load/sweep.h"

namespace attend::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SamplesTest, QuantilesAreNearestRanks) {
  Samples samples;
  for (int i = 1000; i >= 1; --i) samples.Add(i);
  const Distribution distribution = samples.Summarize();
  EXPECT_EQ(distribution.count, 1000);
  EXPECT_EQ(distribution.mean, 500.5);
  EXPECT_EQ(distribution.p50, 500);
  EXPECT_EQ(distribution.p90, 900);
  EXPECT_EQ(distribution.p99, 990);
  EXPECT_EQ(distribution.p999, 999);
  EXPECT_EQ(distribution.max, 1000);
  EXPECT_EQ(samples.CountAbove(990), 10);
}

TEST(SamplesTest, OneAndNone) {
  Samples samples;
  EXPECT_EQ(samples.Summarize().count, 0);
  EXPECT_EQ(samples.Summarize().max, 0);
  EXPECT_EQ(samples.CountAbove(0), 0);
  samples.Add(-3);
  EXPECT_EQ(samples.Summarize().p50, -3);
  EXPECT_EQ(samples.Summarize().p999, -3);
  EXPECT_EQ(samples.Summarize().max, -3);
}

TEST(SamplesTest, PastTheBoundASampleStandsForAll) {
  constexpr int kCount = 200'000;
  Samples samples(10'000);
  for (int i = 0; i < kCount; ++i) samples.Add(i);
  const Distribution distribution = samples.Summarize();
  EXPECT_EQ(distribution.count, kCount);
  EXPECT_EQ(distribution.max, kCount - 1);
  EXPECT_EQ(distribution.mean, (kCount - 1) / 2.0);
  // Five standard errors of a quantile of 10,000: sqrt(q (1 - q) / n).
  EXPECT_NEAR(distribution.p50, 0.5 * kCount, 0.025 * kCount);
  EXPECT_NEAR(distribution.p99, 0.99 * kCount, 0.005 * kCount);
  EXPECT_NEAR(samples.CountAbove(0.9 * kCount), 0.1 * kCount, 0.015 * kCount);
}

CallRecord Call(nanoseconds intended, nanoseconds latency,
                std::optional<nanoseconds> deadline = std::nullopt) {
  return {.tokens = 10,
          .intended = intended,
          .sent = intended + milliseconds(1),
          .ended = intended + latency,
          .deadline = deadline};
}

Recorder OneToThreeSeconds(std::size_t works = 1) {
  return Recorder(seconds(1), seconds(3), works);
}

const AttendStats kStats{
    .queue = milliseconds(2), .compute = milliseconds(3), .flops = 4'000'000'000};

TEST(RecorderTest, CountsCallsByTheirIntendedStartAndRatesByArrival) {
  Recorder recorder = OneToThreeSeconds();
  recorder.Add(Call(milliseconds(500), milliseconds(100)), absl::OkStatus(), kStats);   // warm-up
  recorder.Add(Call(milliseconds(900), milliseconds(200)), absl::OkStatus(), kStats);   // into it
  recorder.Add(Call(milliseconds(2000), milliseconds(50)), absl::OkStatus(), kStats);   // within
  recorder.Add(Call(milliseconds(2900), milliseconds(400)), absl::OkStatus(), kStats);  // out of it
  EXPECT_EQ(recorder.measured_seconds(), 2);
  EXPECT_EQ(recorder.ended(), 4);
  EXPECT_EQ(recorder.total().calls, 2);
  EXPECT_EQ(recorder.total().answered, 2);
  const Rates rates = RatesOf(recorder.total(), recorder.measured_seconds());
  EXPECT_EQ(rates.offered, 1);
  EXPECT_EQ(rates.answered, 1);
  EXPECT_EQ(rates.tokens, 10);
  EXPECT_EQ(rates.gflops, 4);
  EXPECT_EQ(recorder.total().latency.count(), 2);
  EXPECT_FLOAT_EQ(recorder.total().latency.Summarize().max, 0.4f);
  EXPECT_FLOAT_EQ(recorder.lag().Summarize().p50, 0.001f);
  EXPECT_FLOAT_EQ(recorder.queue().Summarize().p50, 0.002f);
  EXPECT_FLOAT_EQ(recorder.compute().Summarize().p50, 0.003f);
}

TEST(RecorderTest, GoodputNeedsTheDeadline) {
  Recorder recorder = OneToThreeSeconds();
  recorder.Add(Call(seconds(1), milliseconds(10), milliseconds(10)), absl::OkStatus(), kStats);
  recorder.Add(Call(seconds(1), milliseconds(11), milliseconds(10)), absl::OkStatus(), kStats);
  EXPECT_EQ(recorder.total().answered, 2);
  EXPECT_EQ(recorder.total().good, 1);
}

TEST(RecorderTest, OnlyWhatIsNotTheCallersDoingIsAnError) {
  Recorder recorder = OneToThreeSeconds();
  const auto add = [&recorder](CallRecord record, absl::Status status) {
    recorder.Add(record, status, {});
  };
  CallRecord given_up = Call(seconds(1), milliseconds(1));
  given_up.given_up = true;
  add(given_up, absl::CancelledError(""));
  add(Call(seconds(1), milliseconds(1)), absl::ResourceExhaustedError("full"));
  add(Call(seconds(1), milliseconds(1), seconds(1)), absl::DeadlineExceededError(""));
  add(Call(seconds(1), milliseconds(1)), absl::OkStatus());
  EXPECT_EQ(ErrorShare(recorder), 0);
  add(Call(seconds(1), milliseconds(1)), absl::CancelledError("why"));
  add(Call(seconds(1), milliseconds(1)), absl::DeadlineExceededError("no deadline of its own"));
  add(Call(seconds(1), milliseconds(1)), absl::UnavailableError("gone"));
  add(Call(seconds(1), milliseconds(1)), absl::InternalError("bug"));
  EXPECT_EQ(ErrorShare(recorder), 0.5);
  const CodeCount& cancelled = recorder.codes().at(absl::StatusCode::kCancelled);
  EXPECT_EQ(cancelled.calls, 2);
  EXPECT_EQ(cancelled.errors, 1);
  EXPECT_EQ(cancelled.message, "why");  // of the error, not of the first call
}

TEST(RecorderTest, DroppedCallsAreOfferedAndTold) {
  Recorder recorder = OneToThreeSeconds(2);
  recorder.AddDropped(1, milliseconds(500));
  recorder.AddDropped(1, milliseconds(1500));
  EXPECT_EQ(recorder.total().calls, 1);
  EXPECT_EQ(recorder.total().dropped, 1);
  EXPECT_EQ(recorder.works()[0].dropped, 0);
  EXPECT_EQ(recorder.works()[1].dropped, 1);
}

TEST(RecorderTest, StoppingEarlyShortensTheMeasuredTime) {
  Recorder recorder = OneToThreeSeconds();
  recorder.Add(Call(milliseconds(1000), milliseconds(1)), absl::OkStatus(), kStats);
  recorder.EndAt(milliseconds(1500));
  EXPECT_EQ(RatesOf(recorder.total(), recorder.measured_seconds()).answered, 2);
  recorder.EndAt(milliseconds(500));
  EXPECT_EQ(recorder.measured_seconds(), 0);
  EXPECT_EQ(RatesOf(recorder.total(), recorder.measured_seconds()).answered, 0);
}

LoadReport ReportOf(Recorder recorder) {
  return {.load = {{"loop", "open"}},
          .run = {std::move(recorder), AnswerSample(0, 1), /*cpu_cores=*/0.25}};
}

TEST(ReportTest, TextAndJsonTellTheSame) {
  Recorder recorder = OneToThreeSeconds();
  recorder.Add(Call(seconds(1), milliseconds(20)), absl::OkStatus(), kStats);
  recorder.Add(Call(seconds(2), milliseconds(1)), absl::UnavailableError("gone"), {});
  recorder.AddDropped(0, seconds(2));
  LoadReport report = ReportOf(std::move(recorder));
  report.verification = {.checked = 3, .failed = 1, .elements = 9, .first_failure = "that one"};
  const std::vector<Work> works = {*ParseWork("length=5")};
  const std::string text = RenderReport(report, works);
  EXPECT_THAT(text, AllOf(HasSubstr("offered 1.5/s, answered 0.5/s, goodput 0.5/s, 5 tokens/s"),
                          HasSubstr("20.0 ms"), HasSubstr("gone"), HasSubstr("(not sent)"),
                          HasSubstr("verified 3 answers"), HasSubstr("that one"),
                          HasSubstr("0.25 of a core"), HasSubstr("FAILED: wrong answers"),
                          HasSubstr("FAILED: 50 % of the calls")));
  const cli::Json json = ToJson(report, works);
  EXPECT_EQ(json["load"]["loop"], "open");
  EXPECT_EQ(json["offered_per_second"], 1.5);
  EXPECT_EQ(json["goodput_per_second"], 0.5);
  EXPECT_EQ(json["calls"], 3);
  EXPECT_EQ(json["dropped"], 1);
  EXPECT_NEAR(json["latency_seconds"]["p99.9"].get<double>(), 0.02, 1e-6);
  EXPECT_EQ(json["codes"]["UNAVAILABLE"]["errors"], 1);
  EXPECT_EQ(json["work"][0]["work"], "length=5");
  EXPECT_EQ(json["verification"]["failed"], 1);
  EXPECT_EQ(json["generator_cpu_cores"], 0.25);
  EXPECT_EQ(json["passed"], false);
}

TEST(ReportTest, PassesWithinTheAllowance) {
  Recorder recorder = OneToThreeSeconds();
  recorder.Add(Call(seconds(1), milliseconds(20)), absl::OkStatus(), kStats);
  recorder.Add(Call(seconds(2), milliseconds(1)), absl::UnavailableError("gone"), {});
  LoadReport report = ReportOf(std::move(recorder));
  EXPECT_FALSE(report.passed());
  report.allowed_errors = 0.5;
  EXPECT_TRUE(report.passed());
  report.verification.failed = 1;
  EXPECT_FALSE(report.passed());
}

TEST(ReportTest, ProgressTellsTheRateSinceTheLastLine) {
  EXPECT_EQ(RenderProgress({.elapsed = seconds(1), .ended = 100, .ended_ok = 100},
                           {.elapsed = seconds(3), .ended = 510, .ended_ok = 500, .in_flight = 7}),
            "3.0 s  500 ok  10 other  7 in flight  200/s");
}

// A server that does `capacity` a second and no more.
MeasureRate ServerOf(double capacity, std::vector<double>* asked) {
  return [capacity, asked](double rate) {
    asked->push_back(rate);
    SweepPoint point{.rate = rate};
    point.rates.offered = rate;
    point.rates.good = std::min(rate, capacity);
    return point;
  };
}

TEST(SweepTest, FindsTheHighestRateThatKeepsUp) {
  std::vector<double> asked;
  const auto sweep =
      RunSweep({.rates = {400, 100, 200}, .refinements = 2}, 0, ServerOf(285, &asked));
  ASSERT_TRUE(sweep.ok());
  EXPECT_THAT(asked, ElementsAre(100, 200, 400, 300, 350));
  EXPECT_EQ(sweep->Saturation(), 300);  // 285 is 0.95 of it
  EXPECT_TRUE(sweep->Saturated());
  EXPECT_EQ(sweep->PeakGoodput(), 285);
  EXPECT_THAT(RenderSweep(*sweep), AllOf(HasSubstr("saturation: 300.0/s; peak goodput: 285.0/s"),
                                         HasSubstr("too much")));
  const cli::Json json = ToJson(*sweep);
  EXPECT_EQ(json["saturation_per_second"], 300);
  EXPECT_EQ(json["points"].size(), 5u);
  EXPECT_EQ(json["points"][4]["keeps_up"], false);
}

TEST(SweepTest, WithoutRatesItRisesUntilTheFirstThatIsTooMuch) {
  std::vector<double> asked;
  const auto sweep = RunSweep({.refinements = 0}, 1000, ServerOf(1000, &asked));
  ASSERT_TRUE(sweep.ok());
  EXPECT_EQ(asked.front(), 250);
  EXPECT_THAT(asked.back(), DoubleNear(1100, 1e-6));
  EXPECT_EQ(sweep->Saturation(), 1000);
}

TEST(SweepTest, RisesFarPastAClosedLoopThatWasSlow) {
  std::vector<double> asked;
  const auto sweep = RunSweep({.refinements = 0}, 100, ServerOf(2000, &asked));
  EXPECT_TRUE(sweep->Saturated());
  EXPECT_EQ(sweep->PeakGoodput(), 2000);
  EXPECT_TRUE(std::is_sorted(asked.begin(), asked.end()));
  asked.clear();
  const auto bounded = RunSweep({.max_factor = 2, .refinements = 0}, 100, ServerOf(2000, &asked));
  EXPECT_FALSE(bounded->Saturated());
  EXPECT_EQ(asked.back(), 200);
}

TEST(SweepTest, SaysWhereTheRatesWereOnOneSideOnly) {
  std::vector<double> asked;
  const auto low = RunSweep({.rates = {1, 2}}, 0, ServerOf(10, &asked));
  EXPECT_FALSE(low->Saturated());
  EXPECT_THAT(RenderSweep(*low), HasSubstr("not saturated at 2.0/s: give higher --rates"));
  const auto high = RunSweep({.rates = {100, 200}}, 0, ServerOf(10, &asked));
  EXPECT_EQ(high->Saturation(), std::nullopt);
  EXPECT_EQ(ToJson(*high)["saturation_per_second"], nullptr);
  EXPECT_THAT(RenderSweep(*high), HasSubstr("give lower --rates"));
}

TEST(SweepTest, AHigherRateThatKeepsUpByLuckDoesNotCount) {
  Sweep sweep;
  for (const double good : {100.0, 150.0, 300.0}) {
    sweep.points.push_back({.rate = 100.0 * static_cast<double>(sweep.points.size() + 1)});
    sweep.points.back().rates = {.offered = sweep.points.back().rate, .good = good};
  }
  EXPECT_EQ(sweep.Saturation(), 100);
}

TEST(SweepTest, AnErrorEndsIt) {
  const auto sweep = RunSweep({.rates = {1}}, 0, [](double) -> absl::StatusOr<SweepPoint> {
    return absl::UnavailableError("gone");
  });
  EXPECT_EQ(sweep.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace attend::load

#include "server/observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace attend {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::StartsWith;

MetricsOptions TestOptions() {
  return {.version = "1.2.3", .cpu_target = "AVX9", .compute_threads = 7, .gemm_primitives = [] {
            return std::int64_t{11};
          }};
}

// Series (name and labels, as written) to value.
std::map<std::string, double> Series(const Metrics& metrics) {
  const std::string text = metrics.Exposition();
  std::map<std::string, double> series;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "#")) continue;
    const auto space = line.rfind(' ');
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
    series[std::string(line.substr(0, space))] = value;
  }
  return series;
}

TEST(MetricsTest, EverySeriesExistsFromTheStart) {
  const Metrics metrics(TestOptions());
  const std::map<std::string, double> series = Series(metrics);
  for (const char* name :
       {"attend_requests_total{code=\"OK\",method=\"Attend\"}",
        "attend_requests_total{code=\"UNAUTHENTICATED\",method=\"GetServerInfo\"}",
        "attend_request_seconds_count{method=\"Attend\"}",
        "attend_request_seconds_sum{method=\"GetServerInfo\"}",
        "attend_queue_seconds_count",
        "attend_compute_seconds_count",
        "attend_batch_requests_count",
        "attend_tokens_total",
        "attend_flops_total",
        "attend_received_bytes_total",
        "attend_sent_bytes_total",
        "attend_in_flight_requests",
        "attend_untaken_answers_total",
        "attend_running_requests",
        "attend_batch_flops_count",
        "attend_queue_depth{priority=\"high\"}",
        "attend_queue_depth{priority=\"low\"}",
        "attend_dropped_total{priority=\"normal\",reason=\"deadline\"}",
        "attend_dropped_total{priority=\"high\",reason=\"cancelled\"}",
        "attend_dropped_total{priority=\"low\",reason=\"queue_full\"}",
        "attend_dropped_total{priority=\"normal\",reason=\"draining\"}"}) {
    ASSERT_THAT(series, Contains(Key(name)));
    EXPECT_EQ(series.at(name), 0) << name;
  }
  const auto requests = std::count_if(series.begin(), series.end(), [](const auto& entry) {
    return absl::StartsWith(entry.first, "attend_requests_total{");
  });
  EXPECT_EQ(requests, 7 * 17);  // methods, codes
}

TEST(MetricsTest, TellsWhatRuns) {
  const Metrics metrics(TestOptions());
  const std::map<std::string, double> series = Series(metrics);
  EXPECT_EQ(series.at("attend_compute_threads"), 7);
  EXPECT_EQ(series.at("attend_gemm_primitives"), 11);
  EXPECT_THAT(metrics.Exposition(),
              HasSubstr("attend_build_info{cpu_target=\"AVX9\",grpc_version="));
  EXPECT_THAT(metrics.Exposition(), HasSubstr("version=\"1.2.3\"} 1"));
}

TEST(MetricsTest, EveryNameIsOursOrTheProcess) {
  const Metrics metrics(TestOptions());
  for (const auto& [name, value] : Series(metrics)) {
    EXPECT_THAT(name, AnyOf(StartsWith("attend_"), StartsWith("process_")));
  }
}

TEST(MetricsTest, CountsACallByMethodAndCode) {
  Metrics metrics(TestOptions());
  metrics.RequestStarted(Method::kAttend);
  EXPECT_EQ(Series(metrics).at("attend_in_flight_requests"), 1);
  metrics.RequestFinished(Method::kAttend, {.code = grpc::StatusCode::OK,
                                            .total_seconds = 0.003,
                                            .queue_seconds = 0.001,
                                            .compute_seconds = 0.002,
                                            .received_bytes = 100,
                                            .sent_bytes = 50,
                                            .tokens = 4,
                                            .flops = 1000});
  const std::map<std::string, double> series = Series(metrics);
  EXPECT_EQ(series.at("attend_in_flight_requests"), 0);
  EXPECT_EQ(series.at("attend_requests_total{code=\"OK\",method=\"Attend\"}"), 1);
  EXPECT_EQ(series.at("attend_requests_total{code=\"OK\",method=\"GetServerInfo\"}"), 0);
  EXPECT_EQ(series.at("attend_request_seconds_bucket{method=\"Attend\",le=\"0.0025\"}"), 0);
  EXPECT_EQ(series.at("attend_request_seconds_bucket{method=\"Attend\",le=\"0.005\"}"), 1);
  EXPECT_EQ(series.at("attend_request_seconds_sum{method=\"Attend\"}"), 0.003);
  EXPECT_EQ(series.at("attend_queue_seconds_sum"), 0.001);
  EXPECT_EQ(series.at("attend_compute_seconds_sum"), 0.002);
  EXPECT_EQ(series.at("attend_received_bytes_total"), 100);
  EXPECT_EQ(series.at("attend_sent_bytes_total"), 50);
  EXPECT_EQ(series.at("attend_tokens_total"), 4);
  EXPECT_EQ(series.at("attend_flops_total"), 1000);
}

TEST(MetricsTest, ObservesTheDurationOfAFailureToo) {
  Metrics metrics(TestOptions());
  metrics.RequestStarted(Method::kAttend);
  metrics.RequestFinished(Method::kAttend,
                          {.code = grpc::StatusCode::INVALID_ARGUMENT, .total_seconds = 0.5});
  const std::map<std::string, double> series = Series(metrics);
  EXPECT_EQ(series.at("attend_requests_total{code=\"INVALID_ARGUMENT\",method=\"Attend\"}"), 1);
  EXPECT_EQ(series.at("attend_request_seconds_count{method=\"Attend\"}"), 1);
  EXPECT_EQ(series.at("attend_queue_seconds_count"), 0);
  EXPECT_EQ(series.at("attend_compute_seconds_count"), 0);
  EXPECT_EQ(series.at("attend_in_flight_requests"), 0);
}

TEST(MetricsTest, CountsACodeThatIsNoneAsUnknown) {
  Metrics metrics(TestOptions());
  metrics.RequestStarted(Method::kGetServerInfo);
  metrics.RequestFinished(Method::kGetServerInfo, {.code = grpc::StatusCode::DO_NOT_USE});
  EXPECT_EQ(Series(metrics).at("attend_requests_total{code=\"UNKNOWN\",method=\"GetServerInfo\"}"),
            1);
}

TEST(MetricsTest, ShowsQueueAndBatches) {
  Metrics metrics(TestOptions());
  metrics.SetQueueDepth(PriorityLabel::kLow, 3);
  metrics.BatchTaken(1, 1000);
  metrics.BatchTaken(5, 10);
  for (int i = 0; i < 6; ++i) metrics.ComputeStarted();
  metrics.ComputeEnded();
  std::map<std::string, double> series = Series(metrics);
  EXPECT_EQ(series.at("attend_queue_depth{priority=\"low\"}"), 3);
  EXPECT_EQ(series.at("attend_running_requests"), 5);
  EXPECT_EQ(series.at("attend_batch_flops_sum"), 1010);
  EXPECT_EQ(series.at("attend_batch_requests_bucket{le=\"1\"}"), 1);
  EXPECT_EQ(series.at("attend_batch_requests_bucket{le=\"8\"}"), 2);
  EXPECT_EQ(series.at("attend_batch_requests_sum"), 6);
  metrics.SetQueueDepth(PriorityLabel::kLow, 0);
  EXPECT_EQ(Series(metrics).at("attend_queue_depth{priority=\"low\"}"), 0);
}

TEST(MetricsTest, CountsDropsByReasonAndPriority) {
  Metrics metrics(TestOptions());
  const std::vector<std::pair<DropReason, std::string>> reasons = {
      {DropReason::kDeadline, "deadline"},    {DropReason::kCancelled, "cancelled"},
      {DropReason::kQueueFull, "queue_full"}, {DropReason::kDisplaced, "displaced"},
      {DropReason::kNoMemory, "no_memory"},   {DropReason::kDraining, "draining"}};
  const std::vector<std::pair<PriorityLabel, std::string>> priorities = {
      {PriorityLabel::kHigh, "high"},
      {PriorityLabel::kNormal, "normal"},
      {PriorityLabel::kLow, "low"}};
  std::map<std::string, double> expected;
  for (const auto& [reason, reason_name] : reasons) {
    for (const auto& [priority, priority_name] : priorities) {
      const auto times = static_cast<int>(expected.size()) + 1;  // another for each series
      for (int i = 0; i < times; ++i) metrics.RequestDropped(reason, priority);
      expected[absl::StrCat("attend_dropped_total{priority=\"", priority_name, "\",reason=\"",
                            reason_name, "\"}")] = times;
    }
  }
  std::map<std::string, double> counted;
  for (const auto& entry : Series(metrics)) {
    if (absl::StartsWith(entry.first, "attend_dropped_total{")) counted.insert(entry);
  }
  EXPECT_EQ(counted, expected);
}

TEST(MetricsTest, ShowsTheProcess) {
  const Metrics metrics(TestOptions());
  const std::map<std::string, double> series = Series(metrics);
  EXPECT_GT(series.at("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(series.at("process_virtual_memory_bytes"), series.at("process_resident_memory_bytes"));
  EXPECT_GE(series.at("process_cpu_seconds_total"), 0);
  EXPECT_GE(series.at("process_open_fds"), 3);
  EXPECT_GE(series.at("process_max_fds"), series.at("process_open_fds"));
  EXPECT_GE(series.at("process_threads"), 1);
  const auto now = static_cast<double>(time(nullptr));
  EXPECT_NEAR(series.at("process_start_time_seconds"), now, 60);
}

}  // namespace
}  // namespace attend

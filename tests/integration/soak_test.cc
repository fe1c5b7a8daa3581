// A long load of everything at once: nothing but the caller's own errors, and nothing left behind.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/load/pacing.h"
#include "client/load/report.h"
#include "client/load/runner.h"
#include "gtest/gtest.h"
#include "tests/support/server_fixture.h"

namespace attend::testing {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr int kConnections = 2;
constexpr int kInFlight = 12;  // in all
constexpr seconds kCalibration(1);
constexpr std::int64_t kMaxMessageBytes = 1 << 28;
constexpr double kCancelled = 0.05;
// Memory is compared only over a time in which it has settled.
constexpr std::chrono::minutes kMemorySettles(5);
constexpr double kMemoryGrowth = 1.02;

// Longer with ATTEND_TEST_SOAK_SECONDS.
seconds Duration() {
  const char* text = std::getenv("ATTEND_TEST_SOAK_SECONDS");
  return seconds(text != nullptr ? std::atoi(text) : 3);
}

// Kinds of requests: lengths of 1 to 4096, every dtype and mask, both phases, every priority. Some
// have a deadline, where one is given.
std::vector<load::Work> Works(std::string deadline) {
  if (!deadline.empty()) deadline = absl::StrCat(",deadline=", deadline);
  std::vector<load::Work> works;
  for (const std::string& text : {
           absl::StrCat("share=4,length=lognormal:64:1:4096,query_heads=4,kv_heads=2", deadline),
           absl::StrCat("share=2,length=uniform:1:512,query_heads=2,dtype=bfloat16,mask=boolean,"
                        "causal,priority=high",
                        deadline),
           std::string("share=2,length=uniform:1:512,query_heads=2,dtype=float16,mask=additive"),
           std::string("share=4,phase=decode,length=uniform:1:4096,query_heads=8,kv_heads=2,"
                       "head_dim=128,dtype=bfloat16,output_dtype=float32,causal"),
           std::string("share=1,length=uniform:1024:4096,query_heads=1,causal,priority=low"),
           std::string("share=1,length=33,query_heads=3,head_dim=40,value_dim=24,batch=5"),
       }) {
    works.push_back(*load::ParseWork(text));
  }
  return works;
}

// In bytes, now.
double ResidentBytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atof(line.c_str() + 6) * 1024;
  }
  return 0;
}

// The mean of what was seen in one part of the run.
struct Mean {
  double sum = 0;
  int count = 0;
  void Add(double value) {
    sum += value;
    ++count;
  }
  double value() const { return sum / count; }
};

class SoakTest : public ServerTest {
 protected:
  load::RunResult RunLoad(const std::vector<load::Work>& works, nanoseconds duration,
                          const load::RunHooks& hooks) {
    mix_.emplace(*load::RequestMix::Create(works, kMaxMessageBytes, 1));
    load::ClosedLoop pacing(kInFlight, duration);
    load::ClientTransport transport(*Client::Create({.target = server_->tcp_target(),
                                                     .retry = {.max_attempts = 1},
                                                     .connections = kConnections}));
    return load::Run({.duration = duration,
                      .cancel_share = kCancelled,
                      .cancel_within = std::chrono::milliseconds(20),
                      .verify = 64},
                     pacing, *mix_, transport, hooks);
  }

  std::optional<load::RequestMix> mix_;
};

TEST_F(SoakTest, MixedLoadMakesNoErrorsAndLeavesNothingBehind) {
  StartServer();
  const load::RunResult calibration = RunLoad(Works(""), kCalibration, {});
  const double p50 = calibration.recorder.total().latency.Summarize().p50;
  ASSERT_GT(p50, 0);

  const seconds duration = Duration();
  Mean middle;  // third of the run
  Mean last;
  const load::RunHooks hooks{.on_progress = [&](const load::Progress& now) {
    if (now.elapsed > duration) return;
    const double bytes = ResidentBytes(server_->process().pid());
    if (now.elapsed > duration * 2 / 3) {
      last.Add(bytes);
    } else if (now.elapsed > duration / 3) {
      middle.Add(bytes);
    }
  }};
  const load::RunResult result = RunLoad(Works(absl::StrCat(p50, "s")), duration, hooks);

  for (const auto& [code, count] : result.recorder.codes()) {
    EXPECT_EQ(count.errors, 0) << absl::StatusCodeToString(code) << ": " << count.message;
  }
  EXPECT_GT(result.recorder.codes().at(absl::StatusCode::kOk).calls, 0);
  const load::VerificationReport verification = result.sample.Verify(*mix_);
  EXPECT_GT(verification.checked, 0);
  EXPECT_EQ(verification.failed, 0) << verification.first_failure;
  EXPECT_TRUE(WaitForMetric("attend_in_flight_requests", 0));
  EXPECT_TRUE(WaitForMetric("attend_queue_depth{priority=\"normal\"}", 0));
  if (duration >= kMemorySettles) {
    EXPECT_LT(last.value(), kMemoryGrowth * middle.value());
  }
  ExpectServes();
}

}  // namespace
}  // namespace attend::testing

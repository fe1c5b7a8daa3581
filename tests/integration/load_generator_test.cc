// attend-load against the real server.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/load/arrivals.h"
#include "client/load/pacing.h"
#include "client/load/recorder.h"
#include "client/load/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/child_process.h"
#include "tests/support/server_fixture.h"
#include "tests/support/wait.h"

namespace attend::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr char kSmall[] = "length=16,query_heads=1";

struct Finished {
  int code = -1;
  std::string out;
  nlohmann::json json;
};

class LoadGeneratorTest : public ServerTest {
 protected:
  void SetUp() override { StartServer({"--shared-memory"}); }

  // Runs the command with these arguments, and reads its report.
  Finished RunCommand(std::vector<std::string> arguments) {
    const std::string path = folder_.PathOf("report.json");
    std::vector<std::string> command = {ATTEND_LOAD_BINARY, "--server", server_->unix_target(),
                                        "--json", path};
    command.insert(command.end(), arguments.begin(), arguments.end());
    ChildProcess process(command);
    Finished finished;
    finished.code = process.WaitForExit().value_or(-1);
    finished.out = process.Stdout() + process.Stderr();
    std::ifstream file(path);
    finished.json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    return finished;
  }

  TempFolder folder_;
};

TEST_F(LoadGeneratorTest, ClosedLoopOfMixedWorkIsAnsweredRight) {
  const Finished finished = RunCommand(
      {"--warmup", "100ms", "--duration", "1s", "--connections", "2", "--in-flight", "4", "--work",
       "length=uniform:1:200,query_heads=4,kv_heads=2,causal,mask=boolean", "--work",
       "phase=decode,length=lognormal:100:1,query_heads=4,dtype=bfloat16,output_dtype=float32",
       "--work", "length=uniform:1:64,query_heads=2,dtype=float16,mask=additive,priority=high"});
  EXPECT_EQ(finished.code, 0) << finished.out;
  ASSERT_TRUE(finished.json.is_object()) << finished.out;
  EXPECT_GT(finished.json["answered_per_second"], 0);
  EXPECT_GT(finished.json["gflops_per_second"], 0);
  EXPECT_GT(finished.json["server_compute_seconds"]["p50"], 0);
  EXPECT_GT(finished.json["generator_cpu_cores"], 0);
  EXPECT_EQ(finished.json["verification"]["checked"], 32);
  EXPECT_EQ(finished.json["codes"].size(), 1u) << finished.json["codes"];
  for (const nlohmann::json& work : finished.json["work"]) EXPECT_GT(work["calls"], 0);
}

TEST_F(LoadGeneratorTest, OpenLoopOffersItsRateWhateverIsGivenUp) {
  const Finished finished =
      RunCommand({"--warmup", "0", "--duration", "1s", "--rate", "200", "--arrivals", "constant",
                  "--cancel", "0.2", "--cancel-within", "5ms", "--work", kSmall});
  EXPECT_EQ(finished.code, 0) << finished.out;
  ASSERT_TRUE(finished.json.is_object()) << finished.out;
  EXPECT_EQ(finished.json["calls"], 200);
  EXPECT_EQ(finished.json["load"]["loop"], "open");
  EXPECT_TRUE(WaitForMetric("attend_in_flight_requests", 0));
}

TEST_F(LoadGeneratorTest, StreamsAndSharedMemoryCarryTheLoad) {
  for (const std::vector<std::string>& transport : std::vector<std::vector<std::string>>{
           {"--stream"}, {"--shared-memory", "16MiB"}, {"--stream", "--shared-memory", "16MiB"}}) {
    std::vector<std::string> arguments = transport;
    arguments.insert(arguments.end(),
                     {"--warmup", "0", "--duration", "500ms", "--in-flight", "6", "--cancel", "0.1",
                      "--work", "length=uniform:1:300,query_heads=4,causal"});
    const Finished finished = RunCommand(arguments);
    EXPECT_EQ(finished.code, 0) << finished.out;
    ASSERT_TRUE(finished.json.is_object()) << finished.out;
    EXPECT_GT(finished.json["answered_per_second"], 0);
    // Fewer than 32 where fewer were answered, the last of them after the measured time.
    const double answers = finished.json["answered_per_second"].get<double>() *
                           finished.json["measured_seconds"].get<double>();
    EXPECT_GE(finished.json["verification"]["checked"], std::min(32L, std::lround(answers)));
    EXPECT_EQ(finished.json["verification"]["failed"], 0);
  }
  EXPECT_TRUE(WaitForMetric("attend_shared_memory_regions", 0));
  EXPECT_TRUE(WaitForMetric("attend_in_flight_requests", 0));
}

TEST_F(LoadGeneratorTest, SweepFindsASaturation) {
  const Finished finished =
      RunCommand({"sweep", "--warmup", "100ms", "--duration", "300ms", "--refinements", "1",
                  "--work", "length=64,query_heads=2,deadline=50ms"});
  EXPECT_EQ(finished.code, 0) << finished.out;
  ASSERT_TRUE(finished.json.is_object()) << finished.out;
  EXPECT_GT(finished.json["closed_loop_per_second"], 0);
  EXPECT_EQ(finished.json["saturated"], true);
  EXPECT_THAT(finished.out, HasSubstr("goodput/s"));
}

TEST_F(LoadGeneratorTest, InterruptEndsTheRunWithItsReport) {
  const std::string path = folder_.PathOf("report.json");
  ChildProcess process({ATTEND_LOAD_BINARY, "--server", server_->unix_target(), "--duration", "1h",
                        "--work", kSmall, "--json", path});
  ASSERT_TRUE(WaitUntil(
      [this] { return server_->Metric("attend_batch_requests_count").value_or(0) > 100; }));
  process.Signal(SIGINT);
  EXPECT_EQ(process.WaitForExit(), 0) << process.Stderr();
  EXPECT_THAT(process.Stdout(), HasSubstr("verified"));
}

// What a call holds of gRPC must be gone with its client, or gRPC's thread would end itself. No
// other callbacks may be in the process, or that thread would live on: hence here.
TEST_F(LoadGeneratorTest, ClientsGoAsSoonAsTheirLastCallHasEnded) {
  // Large, so that it takes its time to free.
  const char* work = "phase=decode,length=16384,query_heads=1,head_dim=128";
  load::RequestMix mix = *load::RequestMix::Create({*load::ParseWork(work)}, 1 << 28, 1);
  for (int i = 0; i < 15; ++i) {
    std::atomic<int> answered{0};
    auto client = *Client::Create({.target = server_->unix_target()});
    for (int call = 0; call < 4; ++call) {
      client->AttendAsync(mix.Args(mix.Next()),
                          [&answered](const absl::StatusOr<AttendResult>& result) {
                            EXPECT_TRUE(result.ok()) << result.status();
                            answered.fetch_add(1);
                            answered.notify_one();
                          });
    }
    for (int seen = answered; seen < 4; seen = answered) answered.wait(seen);
    client.reset();
  }
}

// A load that runs beside the test, in its process.
class RunningLoad {
 public:
  RunningLoad(const std::string& target, std::unique_ptr<load::Pacing> pacing, seconds duration)
      : pacing_(std::move(pacing)),
        mix_(*load::RequestMix::Create({*load::ParseWork(kSmall)}, 1 << 20, 1)),
        transport_(*Client::Create({.target = target, .retry = {.max_attempts = 1}})),
        thread_([this, duration] {
          const load::RunHooks hooks{
              .on_progress = [this](const load::Progress& now) { ended_ = now.ended; }};
          result_.emplace(load::Run({.duration = duration}, *pacing_, mix_, transport_, hooks));
        }) {}
  ~RunningLoad() {
    if (thread_.joinable()) thread_.join();
  }

  std::int64_t ended() const { return ended_; }
  const load::Recorder& Wait() {
    thread_.join();
    return result_->recorder;
  }

 private:
  std::unique_ptr<load::Pacing> pacing_;
  load::RequestMix mix_;
  load::ClientTransport transport_;
  std::atomic<std::int64_t> ended_{0};
  std::optional<load::RunResult> result_;
  std::thread thread_;
};

TEST_F(LoadGeneratorTest, OpenLoopTellsOfASecondInWhichTheServerStoodStill) {
  constexpr double kRate = 400;
  constexpr seconds kDuration(3);
  RunningLoad running(
      server_->tcp_target(),
      std::make_unique<load::OpenLoop>(load::Arrivals(load::ArrivalKind::kConstant, kRate, 1),
                                       10'000, kDuration),
      kDuration);
  ASSERT_TRUE(WaitUntil([&] { return running.ended() > 100; }));
  server_->process().Signal(SIGSTOP);
  const Clock::time_point stopped = Clock::now();
  WaitUntil([] { return false; }, seconds(1));  // the second that must be told of
  const double stall = std::chrono::duration<double>(Clock::now() - stopped).count();
  server_->process().Signal(SIGCONT);
  const load::Recorder& recorder = running.Wait();

  EXPECT_EQ(recorder.total().calls, kRate * 3);
  EXPECT_EQ(recorder.total().latency.count(), kRate * 3) << "not all calls were answered";
  const load::Distribution latency = recorder.total().latency.Summarize();
  EXPECT_GE(latency.max, 0.98 * stall);
  EXPECT_GE(latency.p999, 0.95 * stall);
  // Calls meant to start evenly over the stall waited evenly for what was left of it.
  EXPECT_GE(recorder.total().latency.CountAbove(0.1 * stall), 0.85 * kRate * stall);
  EXPECT_GE(recorder.total().latency.CountAbove(0.5 * stall), 0.45 * kRate * stall);
}

}  // namespace
}  // namespace attend::testing

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/load/pacing.h"
#include "client/load/report.h"
#include "client/load/runner.h"
#include "tests/bench/serve/closed_loops.h"
#include "tests/bench/serve/echo_server.h"
#include "tests/bench/serve/parts.h"
#include "tests/bench/serve/raw_client.h"

namespace attend::bench {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr Cell kGrid[] = {{1, 2}, {1, 8}};
constexpr std::int64_t kInFlight = 4096;
constexpr double kGoodputFloor = 0.9;
constexpr double kRecoveryBound = 1;  // seconds
constexpr seconds kGiveUpRecovery(20);
constexpr double kNormalLatency = 2;  // times the latency alone

struct OverloadCase {
  std::string name;
  testing::Sizes sizes;
  double factor = 2;              // offered, over what the closed loop reaches
  double deadline_latencies = 3;  // the deadline, in latencies of a request alone
  milliseconds shortest_deadline{100};
  nanoseconds measure = seconds(3);
};

testing::Sizes Square(std::int64_t heads, std::int64_t length) {
  return {.batch = 1,
          .query_heads = heads,
          .kv_heads = heads,
          .query_len = length,
          .kv_len = length,
          .head_dim = 64,
          .value_dim = 64};
}

// What a server can do, and what its requests cost to carry.
struct Baseline {
  double peak = 0;     // requests/s of the best closed loop
  double receive = 0;  // requests/s of an echo that answers nothing
  double alone = 0;    // seconds of a request
};

Baseline MeasureBaseline(RawClient& client, const grpc::ByteBuffer& request, nanoseconds measure) {
  const EchoServer echo_server;
  RawClient echo_client(echo_server.tcp_target(), 1);
  const grpc::ByteBuffer echo = EchoRequest(static_cast<std::int64_t>(request.Length()), 0);
  const Subject subjects[] = {[&](const Cell& cell, nanoseconds duration) {
                                return ClosedLoopRate(client, request, cell, duration);
                              },
                              [&](const Cell& cell, nanoseconds duration) {
                                return ClosedLoopRate(echo_client, echo, cell, duration);
                              }};
  const auto rates = MeasureInTurns(
      subjects, {.grid = kGrid, .explore = measure / 6, .measure = measure / 6, .rounds = 3});
  return {.peak = Median(rates[0]),
          .receive = Median(rates[1]),
          .alone = 1 / ClosedLoopRate(client, request, {1, 1}, measure / 6)};
}

// Seconds from now, when the load has ended, until a request takes no more than twice what it takes
// alone.
double SecondsToRecover(RawClient& client, const grpc::ByteBuffer& request, double alone) {
  const Clock::time_point end = Clock::now();
  const auto since = [](Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  };
  while (since(end) < std::chrono::duration<double>(kGiveUpRecovery).count()) {
    const Clock::time_point begin = Clock::now();
    if (client.TryAttend(request) && since(begin) <= kNormalLatency * alone) {
      return std::chrono::duration<double>(begin - end).count();
    }
  }
  return since(end);
}

struct Overloaded {
  load::Rates rates;
  double p99 = 0;
  double recovery = 0;  // seconds
};

Overloaded RunOverload(const OverloadCase& c, testing::ServerProcess& server,
                       const grpc::ByteBuffer& request, const Baseline& baseline,
                       nanoseconds deadline) {
  RawClient client(server.tcp_target(), 1);
  RawTransport transport(client, request);
  load::Work work;
  work.deadline = deadline;
  load::RequestMix mix = *load::RequestMix::Create({work}, 1 << 30, 1);
  // Long enough that what is answered has waited as long as it ever will.
  const load::RunOptions options{.warmup = deadline, .duration = std::max(c.measure, 3 * deadline)};
  load::OpenLoop pacing(load::Arrivals(load::ArrivalKind::kPoisson, c.factor * baseline.peak, 1),
                        kInFlight, options.warmup + options.duration);
  const load::RunResult result = load::Run(options, pacing, mix, transport);
  const double recovery = SecondsToRecover(client, request, baseline.alone);
  const load::Recorder& recorder = result.recorder;
  if (load::ErrorShare(recorder) > 0) Die("a request failed under overload");
  return {load::RatesOf(recorder.total(), recorder.measured_seconds()),
          recorder.total().latency.Summarize().p99, recovery};
}

std::vector<Figure> MeasureOverload(const OverloadCase& c) {
  const auto server = StartServer();
  RawClient client(server->tcp_target(), 1);
  const grpc::ByteBuffer request = ToBuffer(RequestBytes(c.sizes));
  const Baseline baseline = MeasureBaseline(client, request, c.measure);
  const auto deadline = std::max<nanoseconds>(
      c.shortest_deadline, nanoseconds(std::llround(1e9 * c.deadline_latencies * baseline.alone)));
  const Overloaded overloaded = RunOverload(c, *server, request, baseline, deadline);
  // What is received beyond what could be computed takes its share of the machine.
  const double excess = std::max(0.0, overloaded.rates.offered - baseline.peak);
  const double receiving = std::min(1.0, excess / baseline.receive);
  const double deadline_seconds = std::chrono::duration<double>(deadline).count();
  const auto peak_mib = static_cast<double>(server->process().PeakResidentBytes()) / (1 << 20);
  return {{c.name + "_peak", baseline.peak, std::nullopt, "requests/s, closed loop"},
          {c.name + "_offered", overloaded.rates.offered, std::nullopt, "requests/s"},
          {c.name + "_goodput", overloaded.rates.good, std::nullopt, "requests/s"},
          {c.name + "_receiving", receiving, std::nullopt, "of the machine"},
          {c.name + "_goodput_over_rest", overloaded.rates.good / baseline.peak / (1 - receiving),
           kGoodputFloor, "of peak, but for receiving"},
          {c.name + "_p99_over_deadline", overloaded.p99 / deadline_seconds, 1, "of the deadline",
           /*at_most=*/true},
          {c.name + "_recovery", overloaded.recovery, kRecoveryBound, "s", /*at_most=*/true},
          {c.name + "_server_peak_rss", peak_mib, std::nullopt, "MiB"}};
}

}  // namespace

std::vector<Figure> Overload() {
  const OverloadCase cases[] = {
      {.name = "overload2_n512", .sizes = Square(12, 512), .factor = 2},
      {.name = "overload5_n16k", .sizes = Square(1, 16384), .factor = 5, .measure = seconds(6)}};
  std::vector<Figure> figures;
  for (const OverloadCase& c : cases) {
    for (Figure& figure : MeasureOverload(c)) figures.push_back(std::move(figure));
  }
  return figures;
}

}  // namespace attend::bench

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/load/pacing.h"
#include "client/load/report.h"
#include "client/load/runner.h"
#include "tests/bench/serve/parts.h"
#include "tests/bench/serve/raw_client.h"

namespace attend::bench {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr double kSmallRate = 100;  // a second
constexpr std::int64_t kInFlight = 10'000;
constexpr seconds kAlone(4);
constexpr std::chrono::hours kUntilStopped(1);
// A second measurement of the large request alone, afterwards, is worth its time up to here.
constexpr double kRepeatUpTo = 12;  // seconds
constexpr double kSmallBound = 3;
constexpr double kLargeBound = 1.3;

constexpr testing::Sizes kLarge{.batch = 1,
                                .query_heads = 12,
                                .kv_heads = 12,
                                .query_len = 32768,
                                .kv_len = 32768,
                                .head_dim = 64,
                                .value_dim = 64,
                                .dtype = DType::kBFloat16};

// Small requests at their rate, from a connection of their own, for `duration` or until `stop`.
// Returns their latencies from when they were meant to start.
load::Distribution SmallLatency(RawClient& client, const grpc::ByteBuffer& request,
                                nanoseconds duration, const std::atomic<bool>* stop = nullptr) {
  RawTransport transport(client, request);
  load::RequestMix mix = *load::RequestMix::Create({load::Work()}, 1 << 30, 1);
  load::OpenLoop pacing(load::Arrivals(load::ArrivalKind::kConstant, kSmallRate, 1), kInFlight,
                        duration);
  const load::RunResult result =
      load::Run({.duration = duration}, pacing, mix, transport, {.stop = stop});
  if (load::ErrorShare(result.recorder) > 0) Die("a small request failed beside a large one");
  return result.recorder.total().latency.Summarize();
}

double SecondsOf(RawClient& client, const grpc::ByteBuffer& request) {
  const Clock::time_point begin = Clock::now();
  client.AttendAndWait(request);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

std::vector<Figure> HeadOfLine() {
  const auto server = StartServer();
  RawClient small_client(server->tcp_target(), 1);
  RawClient large_client(server->tcp_target(), 1);
  const grpc::ByteBuffer small = ToBuffer(RequestBytes(kSmall));
  const grpc::ByteBuffer large = ToBuffer(RequestBytes(kLarge));

  std::vector<double> small_alone = {SmallLatency(small_client, small, kAlone).p99};
  std::vector<double> large_alone = {SecondsOf(large_client, large)};

  std::atomic<bool> stop{false};
  load::Distribution beside;
  std::thread small_load([&] { beside = SmallLatency(small_client, small, kUntilStopped, &stop); });
  const double large_beside = SecondsOf(large_client, large);
  stop = true;
  small_load.join();

  small_alone.push_back(SmallLatency(small_client, small, kAlone).p99);
  if (large_alone[0] <= kRepeatUpTo) large_alone.push_back(SecondsOf(large_client, large));
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  };
  return {{"small_p99_alone_ms", 1e3 * mean(small_alone), std::nullopt, "ms"},
          {"small_p99_beside_large_ms", 1e3 * beside.p99, std::nullopt, "ms"},
          {"small_p99_beside_over_alone", beside.p99 / mean(small_alone), kSmallBound, "times",
           /*at_most=*/true},
          {"large_alone_s", mean(large_alone), std::nullopt, "s"},
          {"large_beside_over_alone", large_beside / mean(large_alone), kLargeBound, "times",
           /*at_most=*/true}};
}

}  // namespace attend::bench

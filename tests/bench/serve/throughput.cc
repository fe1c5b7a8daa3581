#include <array>
#include <atomic>
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/attention/attention.h"
#include "core/base/buffer_pool.h"
#include "core/executor/executor.h"
#include "tests/bench/serve/closed_loops.h"
#include "tests/bench/serve/echo_server.h"
#include "tests/bench/serve/parts.h"
#include "tests/bench/serve/raw_client.h"
#include "tests/bench/serve/shared_request.h"
#include "tests/bench/serve/stream_loop.h"

namespace attend::bench {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The same for all subjects. The core computes as many requests side by side as are in flight.
constexpr Cell kLargeGrid[] = {{1, 2}, {1, 4}, {2, 2}, {2, 4}};
constexpr Cell kSmallGrid[] = {{1, 8}, {2, 4}, {2, 16}, {2, 64}};
constexpr Cell kSixtyFourInFlight[] = {{2, 32}};
constexpr int kMaxConnections = 2;
constexpr double kOfLimit = 0.85;
constexpr double kOfCoreAt512 = 0.85;
constexpr double kOfCoreAt2048 = 0.93;
constexpr double kOfEcho = 0.7;
constexpr double kOfUnary = 1.3;

// The core on all processors, without a server.
class Core {
 public:
  Core() : executor_(ExecutorOptions()), engine_(executor_, memory_) { engine_.Warm(); }

  double Rate(const v1::AttendRequest& request, const Cell& cell,
              std::chrono::nanoseconds duration) {
    const Clock::time_point begin = Clock::now();
    std::atomic<std::int64_t> computed{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < cell.connections * cell.in_flight; ++i) {
      callers.emplace_back([&] {
        for (; Clock::now() - begin < duration; ++computed) Compute(request);
      });
    }
    for (std::thread& caller : callers) caller.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return static_cast<double>(computed) / seconds;
  }

 private:
  // As much as a server has to do for each request: check it, and compute into new memory.
  void Compute(const v1::AttendRequest& request) {
    const absl::StatusOr<AttentionProblem> problem =
        AttentionProblem::Create(testing::ToArgs(request));
    if (!problem.ok()) Die(problem.status().ToString());
    absl::StatusOr<Tensor> output = Tensor::Zeros(problem->output_dtype(), problem->output_shape());
    if (!output.ok()) Die(output.status().ToString());
    const absl::Status status =
        ComputeAttention(engine_, executor_, *problem, {.output = output->data.data()});
    if (!status.ok()) Die(status.ToString());
  }

  Executor executor_;
  BufferPool memory_;
  AttentionEngine engine_;
};

// One size of request, measured on all subjects.
struct Case {
  DType dtype;
  std::int64_t length;
  std::string name() const {
    return absl::StrCat(dtype == DType::kFloat32 ? "f32" : "bf16", "_n", length);
  }
  // Of the core, through shared memory.
  std::optional<double> shared_target() const {
    if (length < 512) return std::nullopt;
    return length == 512 ? kOfCoreAt512 : kOfCoreAt2048;
  }
  testing::Sizes sizes() const {
    return {.batch = 1,
            .query_heads = 12,
            .kv_heads = 12,
            .query_len = length,
            .kv_len = length,
            .head_dim = 64,
            .value_dim = 64,
            .dtype = dtype};
  }
};

// An echo of what the server is sent and answers.
grpc::ByteBuffer EchoOf(RawClient& server, const grpc::ByteBuffer& request) {
  const grpc::ByteBuffer answer = server.AttendAndWait(request);
  return EchoRequest(static_cast<std::int64_t>(request.Length()),
                     static_cast<std::int64_t>(answer.Length()));
}

Subject ClosedLoopOf(RawClient& client, const grpc::ByteBuffer& request) {
  return [&client, &request](const Cell& cell, std::chrono::nanoseconds duration) {
    return ClosedLoopRate(client, request, cell, duration);
  };
}

std::vector<double> Limits(const std::vector<double>& echo, const std::vector<double>& core) {
  std::vector<double> limits;
  for (std::size_t i = 0; i < echo.size(); ++i) limits.push_back(1 / (1 / echo[i] + 1 / core[i]));
  return limits;
}

struct Clients {
  RawClient echo;
  RawClient tcp;
  RawClient unix_socket;
  std::string unix_target;
};

std::vector<Figure> MeasureCase(const Case& c, Clients& clients, Core& core) {
  v1::AttendRequest message = testing::RandomRequest(c.sizes());
  const grpc::ByteBuffer request = ToBuffer(message.SerializeAsString());
  const grpc::ByteBuffer echo = EchoOf(clients.tcp, request);
  const bool slow = c.length > 512;
  const SharedRequest shared(clients.unix_target, message);
  shared.Check(clients.unix_socket, message);
  const std::array<Subject, 5> subjects = {
      ClosedLoopOf(clients.echo, echo),
      [&](const Cell& cell, std::chrono::nanoseconds duration) {
        return core.Rate(message, cell, duration);
      },
      ClosedLoopOf(clients.tcp, request), ClosedLoopOf(clients.unix_socket, request),
      ClosedLoopOf(clients.unix_socket, shared.bytes())};
  const auto rates = MeasureInTurns(subjects, {.grid = kLargeGrid,
                                               .explore = milliseconds(slow ? 600 : 250),
                                               .measure = milliseconds(slow ? 1000 : 400),
                                               .rounds = slow ? 3 : 5});
  const std::string name = c.name();
  const std::vector<double> limits = Limits(rates[0], rates[1]);
  return {
      {name + "_echo", Median(rates[0]), std::nullopt, "requests/s"},
      {name + "_core", Median(rates[1]), std::nullopt, "requests/s"},
      {name + "_tcp", Median(rates[2]), std::nullopt, "requests/s"},
      {name + "_unix", Median(rates[3]), std::nullopt, "requests/s"},
      {name + "_shared", Median(rates[4]), std::nullopt, "requests/s"},
      {name + "_tcp_over_limit", MedianRatio(rates[2], limits), kOfLimit, "of 1/(1/echo + 1/core)"},
      {name + "_tcp_over_core", MedianRatio(rates[2], rates[1]), std::nullopt, "of core"},
      {name + "_unix_over_core", MedianRatio(rates[3], rates[1]), std::nullopt, "of core"},
      {name + "_shared_over_core", MedianRatio(rates[4], rates[1]), c.shared_target(), "of core"}};
}

}  // namespace

std::string RequestBytes(const testing::Sizes& sizes) {
  return testing::RandomRequest(sizes).SerializeAsString();
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

std::unique_ptr<testing::ServerProcess> StartServer(const std::vector<std::string>& arguments) {
  std::unique_ptr<testing::ServerProcess> server = testing::ServerProcess::Start(arguments);
  if (server == nullptr) Die("attend-server does not start");
  return server;
}

std::vector<Figure> Throughput() {
  const auto server = StartServer({"--shared-memory"});
  const EchoServer echo;
  Clients clients{{echo.tcp_target(), kMaxConnections},
                  {server->tcp_target(), kMaxConnections},
                  {server->unix_target(), kMaxConnections},
                  server->unix_target()};
  Core core;
  std::vector<Figure> figures;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const std::int64_t length : {128, 512, 2048}) {
      for (Figure& figure : MeasureCase({dtype, length}, clients, core)) {
        figures.push_back(std::move(figure));
      }
    }
  }
  return figures;
}

std::vector<Figure> SmallRequests() {
  const auto server = StartServer();
  const EchoServer echo_server;
  RawClient echo_client(echo_server.tcp_target(), kMaxConnections);
  RawClient client(server->tcp_target(), kMaxConnections);
  const std::string bytes = RequestBytes(kSmall);
  const grpc::ByteBuffer request = ToBuffer(bytes);
  const grpc::ByteBuffer echo = EchoOf(client, request);
  std::vector<Subject> subjects = {ClosedLoopOf(echo_client, echo), ClosedLoopOf(client, request)};
  const bool streams = OffersStreams(client, bytes);
  if (streams) {
    subjects.push_back([&](const Cell& cell, std::chrono::nanoseconds duration) {
      return StreamLoopRate(client, bytes, cell, duration);
    });
  }
  const auto rates = MeasureInTurns(
      subjects, {.grid = kSmallGrid, .explore = milliseconds(300), .measure = milliseconds(500)});
  std::vector<Figure> figures = {
      {"small_echo", Median(rates[0]), std::nullopt, "requests/s"},
      {"small_unary", Median(rates[1]), std::nullopt, "requests/s"},
      {"small_unary_over_echo", MedianRatio(rates[1], rates[0]), kOfEcho, "of echo"}};
  figures.push_back(
      {"small_stream", streams ? Median(rates[2]) : std::nan(""), std::nullopt, "requests/s"});
  figures.push_back({"small_stream_over_unary",
                     streams ? MedianRatio(rates[2], rates[1]) : std::nan(""), kOfUnary,
                     "of unary"});
  return figures;
}

std::vector<Figure> Batching() {
  const auto batching = StartServer();
  const auto single = StartServer({"--max-batch-requests", "1"});
  RawClient batching_client(batching->tcp_target(), kMaxConnections);
  RawClient single_client(single->tcp_target(), kMaxConnections);
  const grpc::ByteBuffer request = ToBuffer(RequestBytes(kSmall));
  const Subject subjects[] = {ClosedLoopOf(batching_client, request),
                              ClosedLoopOf(single_client, request)};
  const auto rates = MeasureInTurns(
      subjects,
      {.grid = kSixtyFourInFlight, .explore = milliseconds(300), .measure = milliseconds(700)});
  return {{"small_batched", Median(rates[0]), std::nullopt, "requests/s"},
          {"small_unbatched", Median(rates[1]), std::nullopt, "requests/s"},
          {"small_batched_over_unbatched", MedianRatio(rates[0], rates[1]), std::nullopt,
           "of unbatched"}};
}

}  // namespace attend::bench

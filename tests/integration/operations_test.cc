// What operators meet: health, the admin port, settings and the order of a shutdown.
#include <fstream>
#include <memory>
#include <signal.h>
#include <string>
#include <unistd.h>

#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"
#include "tests/support/server_process.h"

namespace attend::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

namespace health = grpc::health::v1;
using health::HealthCheckResponse;

constexpr char kService[] = "attend.v1.AttentionService";

struct HealthAnswer {
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  HealthCheckResponse::ServingStatus status = HealthCheckResponse::UNKNOWN;
};

HealthAnswer CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& service) {
  grpc::ClientContext context;
  health::HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  const grpc::Status status = health::Health::NewStub(channel)->Check(&context, request, &response);
  return {status.error_code(), response.status()};
}

// Watches the health of one service.
class HealthWatch {
 public:
  HealthWatch(const std::shared_ptr<grpc::Channel>& channel, const std::string& service)
      : stub_(health::Health::NewStub(channel)) {
    health::HealthCheckRequest request;
    request.set_service(service);
    stream_ = stub_->Watch(&context_, request);
  }
  ~HealthWatch() {
    context_.TryCancel();
    stream_->Finish();
  }

  // Waits for the next state.
  HealthCheckResponse::ServingStatus Next() {
    HealthCheckResponse response;
    return stream_->Read(&response) ? response.status() : HealthCheckResponse::UNKNOWN;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<health::Health::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> stream_;
};

TEST(HealthTest, KnownServicesServeAndUnknownAreNotFound) {  // B54, B61
  const auto server = ServerProcess::Start();
  ASSERT_NE(server, nullptr);
  for (const std::string& target : {server->tcp_target(), server->unix_target()}) {
    const auto channel = NewChannel(target);
    for (const char* service : {"", kService}) {
      const HealthAnswer answer = CheckHealth(channel, service);
      EXPECT_EQ(answer.code, grpc::StatusCode::OK) << service;
      EXPECT_EQ(answer.status, HealthCheckResponse::SERVING) << service;
    }
    EXPECT_EQ(CheckHealth(channel, "attend.v1.Nothing").code, grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(HealthWatch(channel, "attend.v1.Nothing").Next(),
              HealthCheckResponse::SERVICE_UNKNOWN);
  }
  server->StopAndExpectSuccess();
}

TEST(HealthTest, DrainSaysNotServingFirstAndServesOn) {
  // A grace that never ends: the test looks around in it and then kills the server.
  const auto server = ServerProcess::Start({"--drain-grace", "1h", "--drain-timeout", "1h1m"});
  ASSERT_NE(server, nullptr);
  const auto channel = NewChannel(server->tcp_target());
  HealthWatch whole(channel, "");
  HealthWatch service(channel, kService);
  EXPECT_EQ(whole.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(service.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(server->Admin("/readyz").status, 200);

  server->process().Signal(SIGTERM);
  EXPECT_EQ(whole.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(service.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(CheckHealth(channel, kService).status, HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(server->Admin("/readyz").status, 503);
  EXPECT_EQ(server->Admin("/livez").status, 200);

  // Who calls nevertheless, on an old or a new connection, is answered.
  for (const auto& used : {channel, NewChannel(server->tcp_target())}) {
    const auto stub = v1::AttentionService::NewStub(used);
    const v1::AttendRequest request = RandomRequest();
    const CallResult result = Attend(*stub, request);
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    ExpectMatchesReference(request, result.response);
  }
}

// A watch has no end of its own; the server must end it, long before it loses patience.
TEST(ShutdownTest, OpenWatchesDoNotHoldItUp) {  // B49
  const auto server = ServerProcess::Start({"--drain-timeout", "1h"});
  ASSERT_NE(server, nullptr);
  HealthWatch watch(NewChannel(server->tcp_target()), kService);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::SERVING);
  server->process().Signal(SIGTERM);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::UNKNOWN) << "expected the end of the stream";
  EXPECT_EQ(server->process().WaitForExit(), 0) << server->process().Stderr();
}

TEST(ShutdownTest, SigtermAndSigintExitWithSuccess) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const auto server = ServerProcess::Start({"--drain-grace", "10ms"});
    ASSERT_NE(server, nullptr);
    server->process().Signal(signal);
    EXPECT_EQ(server->process().WaitForExit(), 0) << server->process().Stderr();
  }
}

TEST(AdminTest, Pages) {
  const auto server = ServerProcess::Start();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->Admin("/livez").status, 200);
  EXPECT_EQ(server->Admin("/readyz").status, 200);
  EXPECT_EQ(server->Admin("/nothing").status, 404);
  EXPECT_EQ(server->Admin("/../../etc/passwd").status, 404);
  const HttpResponse status = server->Admin("/statusz");
  EXPECT_EQ(status.status, 200);
  EXPECT_TRUE(nlohmann::json::accept(status.body)) << status.body;

  auto stub = v1::AttentionService::NewStub(NewChannel(server->tcp_target()));
  ExpectServes(*stub);
  const nlohmann::json after = nlohmann::json::parse(server->Admin("/statusz").body);
  EXPECT_GT(after["recent"]["ok_per_second"], 0);
  EXPECT_GT(after["recent"]["p99_seconds"], 0);
  server->StopAndExpectSuccess();
}

TEST(AdminTest, MetricsTellWhatWasServed) {  // B64
  const auto server = ServerProcess::Start();
  ASSERT_NE(server, nullptr);
  const std::string ok = "attend_requests_total{code=\"OK\",method=\"Attend\"}";
  const std::string invalid = "attend_requests_total{code=\"INVALID_ARGUMENT\",method=\"Attend\"}";
  // All series exist from the start.
  for (const std::string& series :
       {ok, invalid, std::string("attend_queue_depth{priority=\"normal\"}"),
        std::string("attend_in_flight_requests"), std::string("attend_tokens_total"),
        std::string("attend_dropped_total{priority=\"normal\",reason=\"deadline\"}")}) {
    EXPECT_EQ(server->Metric(series), 0) << series;
  }

  auto stub = v1::AttentionService::NewStub(NewChannel(server->tcp_target()));
  const v1::AttendRequest request = RandomRequest();
  const CallResult result = Attend(*stub, request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_FALSE(Attend(*stub, v1::AttendRequest()).status.ok());
  stub.reset();

  EXPECT_EQ(server->Metric(ok), 1);
  EXPECT_EQ(server->Metric(invalid), 1);
  EXPECT_EQ(server->Metric("attend_tokens_total"), 2 * 3);
  EXPECT_EQ(server->Metric("attend_flops_total"), result.response.stats().flops());
  EXPECT_EQ(server->Metric("attend_received_bytes_total"), request.ByteSizeLong());
  EXPECT_EQ(server->Metric("attend_sent_bytes_total"), result.response.ByteSizeLong());
  EXPECT_EQ(server->Metric("attend_request_seconds_count{method=\"Attend\"}"), 2);
  EXPECT_EQ(server->Metric("attend_queue_seconds_count"), 1);
  EXPECT_EQ(server->Metric("attend_compute_seconds_count"), 1);
  EXPECT_EQ(server->Metric("attend_batch_requests_count"), 1);
  EXPECT_EQ(server->Metric("attend_in_flight_requests"), 0);
  EXPECT_EQ(server->Metric("attend_queue_depth{priority=\"normal\"}"), 0);
  EXPECT_GE(server->Metric("attend_compute_threads").value_or(0), 1);
  EXPECT_GE(server->Metric("attend_gemm_primitives").value_or(0), 1);
  EXPECT_GT(server->Metric("process_resident_memory_bytes").value_or(0), 0);
  EXPECT_THAT(server->Admin("/metrics").body, HasSubstr("attend_build_info{"));
  server->StopAndExpectSuccess();
}

struct ProcessRun {
  std::optional<int> exit_code;
  std::string out;
  std::string err;
};

ProcessRun RunServer(std::vector<std::string> arguments,
                     const std::vector<std::string>& environment = {}) {
  arguments.insert(arguments.begin(), ServerBinary());
  ChildProcess process(arguments, environment);
  const std::optional<int> exit_code = process.WaitForExit();
  return {exit_code, process.Stdout(), process.Stderr()};
}

TEST(SettingsTest, PrintConfigTellsValuesAndOrigins) {
  const TempFolder folder;
  const std::string config = folder.PathOf("attend.conf");
  std::ofstream(config) << "max-queue-delay = 3ms\nthreads = 1\n";
  const ProcessRun run = RunServer({"--print-config", "--threads", "2"},
                                   {"ATTEND_CONFIG=" + config, "ATTEND_DRAIN_GRACE=50ms"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, ::testing::ContainsRegex("threads +=  *2 +# flag"));
  EXPECT_THAT(run.out, ::testing::ContainsRegex("max-queue-delay += +\"3ms\" +# file"));
  EXPECT_THAT(run.out, ::testing::ContainsRegex("drain-grace += +\"50ms\" +# environment"));
  EXPECT_THAT(run.out, ::testing::ContainsRegex("max-message-bytes += .*# default"));

  // What it prints is a file of settings that means the same.
  const std::string printed = folder.PathOf("printed.conf");
  std::ofstream(printed) << run.out;
  const ProcessRun again = RunServer({"--config", printed, "--print-config"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, ::testing::ContainsRegex("max-queue-delay += +\"3ms\""));
}

TEST(SettingsTest, HelpAndVersionExitWithSuccess) {
  EXPECT_THAT(RunServer({"--help"}).out, HasSubstr("--max-queue-delay"));
  EXPECT_EQ(RunServer({"--help"}).exit_code, 0);
  EXPECT_THAT(RunServer({"--version"}).out, HasSubstr("attend-server"));
}

TEST(SettingsTest, MistakesExitWith2AndSayWhatToChange) {
  const TempFolder folder;
  const std::string unknown_key = folder.PathOf("unknown.conf");
  std::ofstream(unknown_key) << "no-such-key = 1\n";
  struct Mistake {
    std::vector<std::string> arguments;
    std::vector<std::string> environment;
    const char* message;
  };
  const std::vector<Mistake> mistakes = {
      {{"--no-such-flag"}, {}, "--no-such-flag"},
      {{"stray"}, {}, "stray"},
      {{"--threads", "many"}, {}, "threads"},
      {{"--threads", "-1"}, {}, "threads"},
      {{"--max-queue-delay", "5"}, {}, "max-queue-delay"},
      {{"--max-message-bytes", "3GiB"}, {}, "max-message-bytes"},
      {{"--listen", "nowhere"}, {}, "listen"},
      {{"--listen", "0.0.0.0:0"}, {}, "allow-insecure-remote"},
      {{"--admin-listen", "0.0.0.0:0"}, {}, "allow-insecure-remote"},
      {{"--log-format", "xml"}, {}, "log-format"},
      {{"--config", folder.PathOf("missing")}, {}, "missing"},
      {{"--config", unknown_key}, {}, "no-such-key"},
      {{"--ready-file", folder.PathOf("missing/ready.json")}, {}, "is not a folder"},
      {{}, {"ATTEND_NO_SUCH_SETTING=1"}, "ATTEND_NO_SUCH_SETTING"},
      {{}, {"ATTEND_THREADS=0x10"}, "ATTEND_THREADS"},
      {{"--drain-grace", "5s", "--drain-timeout", "4s"}, {}, "drain"}};
  for (const Mistake& mistake : mistakes) {
    const ProcessRun run = RunServer(mistake.arguments, mistake.environment);
    EXPECT_EQ(run.exit_code, 2) << mistake.message << "\n" << run.err;
    EXPECT_THAT(run.err, HasSubstr(mistake.message));
  }
}

TEST(SettingsTest, AddressThatIsTakenIsRefused) {
  const auto server = ServerProcess::Start();
  ASSERT_NE(server, nullptr);
  const ProcessRun run =
      RunServer({"--listen", server->tcp_target(), "--admin-listen", "127.0.0.1:0"});
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr(server->tcp_target()));
  server->StopAndExpectSuccess();
}

}  // namespace
}  // namespace attend::testing

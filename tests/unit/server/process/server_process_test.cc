#include "server/process/server_process.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/schedule/clock.h"
#include "tests/support/calls.h"
#include "tests/support/http_get.h"
#include "tests/support/requests.h"
#include "tests/support/temp_folder.h"
#include "tests/support/wait.h"

namespace attend {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

class ServerProcessTest : public ::testing::Test {
 protected:
  // The flags win over an environment of small and free defaults.
  absl::StatusOr<std::unique_ptr<ServerProcess>> Start(const std::vector<std::string>& flags) {
    const auto loaded = LoadSettings(flags, {{"ATTEND_LISTEN", "127.0.0.1:0"},
                                             {"ATTEND_ADMIN_LISTEN", "127.0.0.1:0"},
                                             {"ATTEND_THREADS", "1"},
                                             {"ATTEND_WARM", "false"}});
    if (!loaded.ok()) return loaded.status();
    return ServerProcess::Start(*loaded, MakeStderrLogger(spdlog::level::err, LogLines::kText));
  }

  // A running server, which the test fails without.
  std::unique_ptr<ServerProcess> MustStart(const std::vector<std::string>& flags = {}) {
    auto process = Start(flags);
    EXPECT_TRUE(process.ok()) << process.status();
    return process.ok() ? *std::move(process) : nullptr;
  }

  static std::shared_ptr<grpc::Channel> ChannelTo(const ServerProcess& process) {
    return grpc::CreateChannel(process.grpc_addresses().front(),
                               grpc::InsecureChannelCredentials());
  }

  const testing::TempFolder folder_;
};

TEST_F(ServerProcessTest, ServesAttentionOverTcpAndUnix) {
  const std::string unix_address = absl::StrCat("unix:", folder_.PathOf("a.sock"));
  const auto process = MustStart({absl::StrCat("--listen=127.0.0.1:0,", unix_address)});
  ASSERT_NE(process, nullptr);
  ASSERT_EQ(process->grpc_addresses().size(), 2u);
  EXPECT_EQ(process->grpc_addresses()[1], unix_address);
  for (const std::string& address : process->grpc_addresses()) {
    const auto stub = v1::AttentionService::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    const v1::AttendRequest request = testing::RandomRequest();
    const testing::CallResult result = testing::Attend(*stub, request);
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    testing::ExpectMatchesReference(request, result.response);
  }
}

TEST_F(ServerProcessTest, WritesWhereItServes) {
  const std::string path = folder_.PathOf("ready.json");
  const auto process = MustStart({absl::StrCat("--ready-file=", path)});
  ASSERT_NE(process, nullptr);
  std::ifstream file(path);
  const nlohmann::json ready = nlohmann::json::parse(file);
  EXPECT_EQ(ready["pid"], getpid());
  EXPECT_EQ(ready["grpc"][0], process->grpc_addresses()[0]);
  EXPECT_EQ(ready["admin"], process->admin_address());
  process->Drain(MonotonicClock().Now(), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ServerProcessTest, LeavesTheReadyFileOfTheServerThatHoldsItsPort) {
  const std::string path = folder_.PathOf("ready.json");
  const std::string ready_flag = absl::StrCat("--ready-file=", path);
  const auto process = MustStart({ready_flag});
  ASSERT_NE(process, nullptr);
  const auto second =
      Start({ready_flag, absl::StrCat("--listen=", process->grpc_addresses().front())});
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(ServerProcessTest, StatusTellsSettingsAndState) {
  const auto process = MustStart({"--server-name=here"});
  ASSERT_NE(process, nullptr);
  const nlohmann::json status =
      nlohmann::json::parse(testing::HttpGet(process->admin_address(), "/statusz").body);
  EXPECT_EQ(status["server"], "here");
  EXPECT_EQ(status["state"], "serving");
  EXPECT_EQ(status["compute_threads"], 1);
  EXPECT_GE(status["uptime_seconds"], 0);
  EXPECT_EQ(status["queue"]["waiting"]["normal"], 0);
  EXPECT_EQ(status["queue"]["running"], 0);
  EXPECT_EQ(status["queue"]["admitted_bytes"], 0);
  EXPECT_EQ(status["recent"]["requests_per_second"], 0);
  EXPECT_THAT(status["settings"],
              ::testing::Contains(nlohmann::json(
                  {{"name", "server-name"}, {"value", "here"}, {"origin", "flag"}})));
}

TEST_F(ServerProcessTest, ServesWithoutAnAdminPort) {
  const auto process = MustStart({"--admin-listen="});
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->admin_address(), "");
}

TEST_F(ServerProcessTest, RefusesAddressesThatAreTaken) {
  const std::string unix_address = absl::StrCat("unix:", folder_.PathOf("a.sock"));
  const auto process = MustStart({absl::StrCat("--listen=127.0.0.1:0,", unix_address)});
  ASSERT_NE(process, nullptr);
  const std::string tcp_address = process->grpc_addresses()[0];
  for (const std::string& flag :
       {absl::StrCat("--listen=", tcp_address), absl::StrCat("--listen=", unix_address),
        absl::StrCat("--admin-listen=", process->admin_address())}) {
    const auto second = Start({flag});
    ASSERT_FALSE(second.ok()) << flag;
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(flag.substr(flag.find('=') + 1)));
  }
  for (const std::string setting : {"listen", "admin-listen"}) {
    const std::string taken = setting == "listen" ? tcp_address : process->admin_address();
    EXPECT_THAT(std::string(Start({absl::StrCat("--", setting, "=", taken)}).status().message()),
                HasSubstr(absl::StrCat(setting, ": cannot listen on ", taken,
                                       ": Address already in use; another process")));
  }
  // The first of two that fails is named, and only that one.
  const std::string two = std::string(
      Start({absl::StrCat("--listen=", tcp_address, ",127.0.0.1:0")}).status().message());
  EXPECT_THAT(two, ::testing::Not(HasSubstr("127.0.0.1:0")));
  // The first one serves on.
  HealthCheckResponse response;
  grpc::ClientContext context;
  const auto stub =
      Health::NewStub(grpc::CreateChannel(unix_address, grpc::InsecureChannelCredentials()));
  ASSERT_TRUE(stub->Check(&context, HealthCheckRequest(), &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
}

TEST_F(ServerProcessTest, TellsWhyAnAddressIsNone) {
  const auto message = [this](const std::string& flag) {
    return std::string(Start({"--allow-insecure-remote", flag}).status().message());
  };
  for (const char* setting : {"listen", "admin-listen"}) {  // an address of documentation
    EXPECT_THAT(message(absl::StrCat("--", setting, "=192.0.2.1:0")),
                HasSubstr(absl::StrCat(setting, ": cannot listen on 192.0.2.1:0: Cannot assign ")));
  }
  EXPECT_THAT(message("--listen=unix:/no/such/folder/a.sock"),
              HasSubstr("unix:/no/such/folder/a.sock: No such file or directory"));
}

TEST_F(ServerProcessTest, RefusesCompressedMessages) {
  const auto process = MustStart();
  ASSERT_NE(process, nullptr);
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const auto stub = v1::AttentionService::NewStub(ChannelTo(*process));
  v1::AttendResponse response;
  const grpc::Status status = stub->Attend(&context, testing::RandomRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
}

TEST_F(ServerProcessTest, DrainServesOnInItsGraceAndThenStopsAtOnce) {
  const auto process = MustStart({"--drain-grace=1h", "--drain-timeout=2h"});
  ASSERT_NE(process, nullptr);
  const auto channel = ChannelTo(*process);
  const auto health = Health::NewStub(channel);
  grpc::ClientContext context;
  const auto watch = health->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);

  std::thread drain(
      [&process] { process->Drain(MonotonicClock().Now() + absl::Hours(2), nullptr); });
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(testing::HttpGet(process->admin_address(), "/readyz").status, 503);
  const auto stub = v1::AttentionService::NewStub(channel);
  EXPECT_TRUE(testing::Attend(*stub, testing::RandomRequest()).status.ok());

  // The open watch does not keep the drain waiting for its two hours.
  process->Hurry();
  drain.join();
  EXPECT_FALSE(watch->Read(&response));
}

TEST_F(ServerProcessTest, DrainFailsWhatItsDeadlineOvertakes) {
  const auto process = MustStart({"--drain-grace=0"});
  ASSERT_NE(process, nullptr);
  testing::RunningCall call(ChannelTo(*process), testing::SlowRequest());
  ASSERT_TRUE(testing::WaitUntil([&process] {
    return testing::HttpGet(process->admin_address(), "/metrics")
               .body.find("attend_batch_requests_count 1") != std::string::npos;
  }));
  process->Drain(MonotonicClock().Now() + absl::Milliseconds(500), nullptr);
  EXPECT_EQ(call.Wait().status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerProcessTest, DrainRefusesNewCallsAsUnavailable) {
  const auto process = MustStart({"--drain-grace=0"});
  ASSERT_NE(process, nullptr);
  const auto stub = v1::AttentionService::NewStub(ChannelTo(*process));
  ASSERT_TRUE(testing::Attend(*stub, testing::RandomRequest()).status.ok());
  process->Drain(MonotonicClock().Now() + absl::Seconds(10), nullptr);
  EXPECT_EQ(testing::Attend(*stub, testing::RandomRequest()).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace attend

#include "tests/support/server_process.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <grpc/grpc.h>
#include <signal.h>
#include <sstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/wait.h"

namespace attend::testing {

std::string ServerBinary() {
  const char* override_path = std::getenv("ATTEND_TEST_SERVER_BINARY");
  return override_path != nullptr ? override_path : ATTEND_SERVER_BINARY;
}

std::unique_ptr<ServerProcess> ServerProcess::Start(const std::vector<std::string>& arguments) {
  std::unique_ptr<ServerProcess> server(new ServerProcess);
  const std::string ready_file = server->folder_.PathOf("ready.json");
  std::vector<std::string> command = {
      ServerBinary(),   "--listen",    "127.0.0.1:0,unix:" + server->folder_.PathOf("socket"),
      "--admin-listen", "127.0.0.1:0", "--ready-file",
      ready_file};
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (std::find(arguments.begin(), arguments.end(), "--drain-grace") == arguments.end()) {
    command.insert(command.end(), {"--drain-grace", "10ms"});  // most tests have no one to warn
  }
  server->process_ = std::make_unique<ChildProcess>(command);
  if (server->WaitUntilReady(ready_file)) return server;
  ADD_FAILURE() << "attend-server does not serve; its log:\n" << server->process_->Stderr();
  return nullptr;
}

bool ServerProcess::WaitUntilReady(const std::string& ready_file) {
  nlohmann::json ready;
  WaitUntil([&] {
    std::ifstream file(ready_file);
    if (file) ready = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    return ready.is_object() || !process_->Running();
  });
  if (!ready.is_object() || ready.value("pid", 0) != process_->pid()) return false;
  for (const auto& address : ready.value("grpc", nlohmann::json::array())) {
    const std::string target = address.get<std::string>();
    (target.rfind("unix:", 0) == 0 ? unix_target_ : tcp_target_) = target;
  }
  admin_address_ = ready.value("admin", "");
  return !tcp_target_.empty() && !unix_target_.empty() && !admin_address_.empty();
}

std::optional<double> ServerProcess::Metric(const std::string& series) const {
  std::istringstream lines(Admin("/metrics").body);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(series + " ", 0) == 0) {
      return std::strtod(line.c_str() + series.size(), nullptr);
    }
  }
  return std::nullopt;
}

void ServerProcess::StopAndExpectSuccess() {
  process_->Signal(SIGTERM);
  const std::optional<int> exit_code = process_->WaitForExit();
  EXPECT_EQ(exit_code, 0) << process_->Stderr();
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& target) {
  static std::atomic<int> next_id{0};
  // Keeps gRPC alive between channels: shutting it down with the last one may take 10 s.
  static const bool initialized = (grpc_init(), true);
  static_cast<void>(initialized);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Channels with equal arguments share one connection.
  arguments.SetInt("attend.test_channel", next_id++);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace attend::testing

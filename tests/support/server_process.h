// The real attend-server, started for a test.
#ifndef ATTEND_TESTS_SUPPORT_SERVER_PROCESS_H_
#define ATTEND_TESTS_SUPPORT_SERVER_PROCESS_H_

#include <cstdint>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/http_get.h"
#include "tests/support/temp_folder.h"

namespace attend::testing {

// The binary under test, by its path.
std::string ServerBinary();

// Serves on a free TCP port, a Unix socket and a free admin port of this host.
class ServerProcess {
 public:
  // Starts a server and waits until it serves. `arguments` are added to the addresses, and a short
  // --drain-grace unless they hold one. Null, with a failure of the running test that shows the
  // server's log, where it does not serve.
  static std::unique_ptr<ServerProcess> Start(const std::vector<std::string>& arguments = {});

  ChildProcess& process() { return *process_; }
  // "127.0.0.1:port" and "unix:/path": as a channel's target.
  const std::string& tcp_target() const { return tcp_target_; }
  const std::string& unix_target() const { return unix_target_; }
  const std::string& admin_address() const { return admin_address_; }

  HttpResponse Admin(const std::string& path) const { return HttpGet(admin_address_, path); }

  // The value of a series, such as `attend_in_flight{method="Attend"}`, at this moment; nothing if
  // there is no such series.
  std::optional<double> Metric(const std::string& series) const;

  // Asks it to stop, waits, and expects exit code 0. Let go of channels first: an idle one looks
  // only every 5 s whether its server is leaving, and so long the server waits for it.
  void StopAndExpectSuccess();

 private:
  ServerProcess() = default;
  bool WaitUntilReady(const std::string& ready_file);

  TempFolder folder_;
  std::unique_ptr<ChildProcess> process_;
  std::string tcp_target_;
  std::string unix_target_;
  std::string admin_address_;
};

// A channel of its own (no connection is shared) without a limit on messages.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& target);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_SERVER_PROCESS_H_

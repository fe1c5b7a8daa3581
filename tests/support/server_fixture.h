// A test that talks to a server of its own.
#ifndef ATTEND_TESTS_SUPPORT_SERVER_FIXTURE_H_
#define ATTEND_TESTS_SUPPORT_SERVER_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "attend/v1/attention.grpc.pb.h"
#include "tests/support/server_process.h"

namespace attend::testing {

class ServerTest : public ::testing::Test {
 protected:
  // Starts the server and connects; to be called once, by the test.
  void StartServer(const std::vector<std::string>& arguments = {});

  // Stops the server, unless the test has, and expects exit code 0.
  void TearDown() override;

  // Whether the series gets this value, in the time that tests wait for anything.
  bool WaitForMetric(const std::string& series, double value);

  // Expects a plain request to be answered right.
  void ExpectServes();

  std::unique_ptr<ServerProcess> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
};

// Expects a plain request to be answered right.
void ExpectServes(v1::AttentionService::Stub& stub);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_SERVER_FIXTURE_H_

#include "tests/support/server_fixture.h"

#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/wait.h"

namespace attend::testing {

void ServerTest::StartServer(const std::vector<std::string>& arguments) {
  server_ = ServerProcess::Start(arguments);
  ASSERT_NE(server_, nullptr);
  channel_ = NewChannel(server_->tcp_target());
  stub_ = v1::AttentionService::NewStub(channel_);
}

void ServerTest::TearDown() {
  // First: the server waits a while for connections that are open.
  stub_.reset();
  channel_.reset();
  if (server_ != nullptr && server_->process().Running()) server_->StopAndExpectSuccess();
}

bool ServerTest::WaitForMetric(const std::string& series, double value) {
  return WaitUntil([&] { return server_->Metric(series) == value; });
}

void ServerTest::ExpectServes() { testing::ExpectServes(*stub_); }

void ExpectServes(v1::AttentionService::Stub& stub) {
  const v1::AttendRequest request = RandomRequest();
  const CallResult result = Attend(stub, request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  ExpectMatchesReference(request, result.response);
}

}  // namespace attend::testing

// Every kind of malformed request: refused with its code and the field's path, and the server
// answers the next request. Rows of the project's list of public failures are named (B6, ...).
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/malformed_requests.h"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"
#include "tests/support/server_process.h"

namespace attend::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string CaseName(const ::testing::TestParamInfo<BadRequestCase>& info) {
  return info.param.name;
}

class MalformedRequestTest : public ::testing::TestWithParam<BadRequestCase> {
 protected:
  static void SetUpTestSuite() { server_ = ServerProcess::Start(); }
  static void TearDownTestSuite() {
    if (server_ != nullptr) server_->StopAndExpectSuccess();
    server_.reset();
  }

  void SetUp() override {
    ASSERT_NE(server_, nullptr);
    stub_ = v1::AttentionService::NewStub(NewChannel(server_->tcp_target()));
  }

  static std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
};

std::unique_ptr<ServerProcess> MalformedRequestTest::server_;

TEST_P(MalformedRequestTest, IsInvalidByTheFieldsName) {
  v1::AttendRequest request = RandomRequest();
  GetParam().spoil(request);
  const CallResult result = Attend(*stub_, request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(result.fields, ElementsAre(GetParam().field));
  EXPECT_THAT(result.status.error_message(), HasSubstr(GetParam().field));
  EXPECT_THAT(result.status.error_message(), HasSubstr(GetParam().message));
  EXPECT_LT(result.status.error_message().size(), 2000u);
  ExpectServes(*stub_);
}

INSTANTIATE_TEST_SUITE_P(Tensors, MalformedRequestTest, ::testing::ValuesIn(TensorCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Lengths, MalformedRequestTest, ::testing::ValuesIn(LengthCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Scalars, MalformedRequestTest, ::testing::ValuesIn(ScalarCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Masks, MalformedRequestTest, ::testing::ValuesIn(MaskCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(OptionTensors, MalformedRequestTest,
                         ::testing::ValuesIn(OptionTensorCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Outputs, MalformedRequestTest, ::testing::ValuesIn(OutputCases()),
                         CaseName);

}  // namespace
}  // namespace attend::testing

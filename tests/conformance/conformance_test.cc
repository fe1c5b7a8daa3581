// Outside conformance cases, through the running server. Prints how many ran and names the rest.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/case.h"
#include "tests/conformance/convert.h"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_process.h"

namespace attend::testing {
namespace {

using ::testing::ElementsAreArray;

// What became of the cases.
struct Tally {
  int passed = 0;
  int failed = 0;
  std::vector<std::string> other_op;
};

Tally& GetTally() {
  static Tally tally;
  return tally;
}

class PrintTally : public ::testing::Environment {
 public:
  void TearDown() override {
    const Tally& tally = GetTally();
    std::printf("conformance: %d cases ran through the server, %d of them failed\n",
                tally.passed + tally.failed, tally.failed);
    Print("of another operation", tally.other_op);
  }

 private:
  static void Print(const char* what, const std::vector<std::string>& names) {
    std::printf("conformance: %zu %s\n", names.size(), what);
    for (const std::string& name : names) std::printf("  %s\n", name.c_str());
  }
};

const auto* const kPrintTally = ::testing::AddGlobalTestEnvironment(new PrintTally);

std::string NameOf(const std::string& path) { return std::filesystem::path(path).stem(); }

// Expects |got - want| <= atol + rtol * |want|, or equality of what is not finite.
void ExpectWithin(const Case& test_case, const std::string& name, const v1::Tensor& got) {
  const Tensor& want = test_case.outputs.at(name);
  const std::vector<float> got_values = FloatsOf(got);
  const std::vector<float> want_values = want.ToFloats();
  ASSERT_EQ(got_values.size(), want_values.size()) << name;
  for (std::size_t i = 0; i < want_values.size(); ++i) {
    const double bound = test_case.atol + test_case.rtol * std::abs(want_values[i]);
    const bool close = std::isfinite(want_values[i])
                           ? std::abs(got_values[i] - want_values[i]) <= bound
                           : got_values[i] == want_values[i];
    ASSERT_TRUE(close) << name << "[" << i << "] is " << got_values[i] << "; expected "
                       << want_values[i] << " within " << bound;
  }
}

// present_key and present_value are the caller's own to keep: what we sent must be them.
void ExpectPresentIsWhatWasSent(const Case& test_case) {
  for (const auto& [present, past, fresh] : {std::array{"present_key", "past_key", "K"},
                                             std::array{"present_value", "past_value", "V"}}) {
    const auto want = test_case.outputs.find(present);
    if (want == test_case.outputs.end()) continue;
    const Tensor joined = JoinPast(test_case.input(past), *test_case.input(fresh),
                                   test_case.integer("kv_num_heads", 0));
    EXPECT_THAT(joined.shape, ElementsAreArray(want->second.shape)) << present;
    EXPECT_EQ(joined.data, want->second.data) << present;
  }
}

class ConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    server_ = ServerProcess::Start();
    if (server_ == nullptr) return;
    stub_ = v1::AttentionService::NewStub(NewChannel(server_->tcp_target()));
  }
  static void TearDownTestSuite() {
    stub_.reset();  // first: the server waits a while for connections that are open
    if (server_ != nullptr) server_->StopAndExpectSuccess();
    server_.reset();
  }

  void TearDown() override {
    if (!IsSkipped()) ++(HasFailure() ? GetTally().failed : GetTally().passed);
  }

  static std::unique_ptr<ServerProcess> server_;
  static std::unique_ptr<v1::AttentionService::Stub> stub_;
};

std::unique_ptr<ServerProcess> ConformanceTest::server_;
std::unique_ptr<v1::AttentionService::Stub> ConformanceTest::stub_;

TEST_P(ConformanceTest, IsWithinItsTolerance) {
  ASSERT_NE(stub_, nullptr);
  const std::string name = NameOf(GetParam());
  const absl::StatusOr<Case> test_case = ReadCase(GetParam());
  ASSERT_TRUE(test_case.ok()) << test_case.status();
  if (test_case->op == "RotaryEmbedding") {
    GetTally().other_op.push_back(name);
    GTEST_SKIP() << "RotaryEmbedding is an operation of its own, of which this server has no call";
  }
  const absl::StatusOr<v1::AttendRequest> request = ToRequest(*test_case);
  ASSERT_TRUE(request.ok()) << request.status();
  ExpectPresentIsWhatWasSent(*test_case);

  const CallResult result = Attend(*stub_, *request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  ExpectWithin(*test_case, "Y", result.response.output());
  if (test_case->outputs.count("qk_matmul_output") > 0) {
    ExpectWithin(
        *test_case, "qk_matmul_output",
        result.response.has_weights() ? result.response.weights() : result.response.scores());
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConformanceTest);
INSTANTIATE_TEST_SUITE_P(Cases, ConformanceTest, ::testing::ValuesIn(ListCases()),
                         [](const auto& param) { return NameOf(param.param); });

TEST(ConformanceCasesTest, ArePresent) {
  if (CaseFolder().empty() || !std::filesystem::exists(CaseFolder())) {
    GTEST_SKIP()
        << "no conformance cases: set ATTEND_TEST_SHARED_DIR to the folder that holds cases/";
  }
  EXPECT_FALSE(ListCases().empty()) << "no case in " << CaseFolder();
}

}  // namespace
}  // namespace attend::testing

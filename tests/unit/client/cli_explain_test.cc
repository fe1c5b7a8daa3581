// `attend explain` on the worked examples, with the values that they are taught with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/client/cli_fixture.h"
#include "tests/unit/client/fake_server.h"

namespace attend::cli {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

using Numbers = std::vector<double>;

struct Expected {
  std::string example;
  std::size_t query;  // index among the example's queries
  Numbers scaled;     // empty: not compared
  Numbers weights;
  Numbers output;  // empty: not compared
  double tolerance;
};

void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.example << " query " << expected.query;
}

class WorkedExampleTest : public ::testing::TestWithParam<Expected> {};

TEST_P(WorkedExampleTest, HasTheTaughtValues) {
  const Expected& expected = GetParam();
  FakeServer server;
  const Outcome outcome = RunCommandLine(
      {"--server", server.target(), "--json", "explain", "--example", expected.example});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json query = outcome.json()["queries"][expected.query];
  const auto near = [&] { return DoubleNear(expected.tolerance); };
  // Scores and weights of keys past a causal row are -inf and 0: the first ones are taught.
  Numbers weights = query["weights"].get<Numbers>();
  weights.resize(expected.weights.size());
  EXPECT_THAT(weights, Pointwise(near(), expected.weights));
  if (!expected.scaled.empty()) {
    EXPECT_THAT(query["scaled"].get<Numbers>(), Pointwise(near(), expected.scaled));
  }
  if (!expected.output.empty()) {
    EXPECT_THAT(query["output"].get<Numbers>(), Pointwise(near(), expected.output));
  }
}

constexpr double kFourDecimals = 0.51e-4;
constexpr double kFiveDecimals = 0.51e-5;
constexpr double kSixDecimals = 0.6e-6;

INSTANTIATE_TEST_SUITE_P(
    All, WorkedExampleTest,
    ::testing::Values(
        Expected{"causal-step",
                 0,
                 {0.7071, 0.7071, 1.4142},
                 {0.2483, 0.2483, 0.5035},
                 {},
                 kFourDecimals},
        Expected{"causal-step-unscaled", 0, {1, 1, 2}, {0.2119, 0.2119, 0.5761}, {}, kFourDecimals},
        Expected{"three-keys", 0, {1.2, 0.9, 1.55}, {0.3165, 0.2344, 0.4491}, {}, kFourDecimals},
        Expected{"three-keys", 0, {}, {}, {0.591798, 0.571496, 0.620302, 0.596040}, kSixDecimals},
        Expected{"self-attention", 0, {}, {1, 0, 0}, {1, 0.5, 0.2, 0.8}, kSixDecimals},
        Expected{"self-attention",
                 1,
                 {},
                 {0.329599, 0.670401, 0},
                 {0.530719, 0.969281, 0.468160, 0.531840},
                 kSixDecimals},
        Expected{"self-attention",
                 2,
                 {},
                 {0.258150, 0.173043, 0.568807},
                 {0.821989, 0.393607, 0.781143, 0.673902},
                 kSixDecimals},
        Expected{"gap-4", 0, {}, {0.7311}, {}, kFourDecimals},
        Expected{"gap-4-unscaled", 0, {}, {0.8808}, {}, kFourDecimals},
        Expected{"gap-64", 0, {}, {0.7311}, {}, kFourDecimals},
        Expected{"gap-64-unscaled", 0, {}, {0.99966}, {}, kFiveDecimals},
        Expected{"gap-1024", 0, {}, {0.7311}, {}, kFourDecimals},
        Expected{"gap-1024-unscaled", 0, {}, {1.0000}, {}, kFourDecimals}));

TEST(ExplainTest, ShowsEveryStepAsATable) {
  FakeServer server;
  const Outcome outcome =
      RunCommandLine({"explain", "--example", "causal-step", "--server", server.target()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "causal-step: one causal step, head_dim 2\n"
            "scale 0.7071 = 1/sqrt(head_dim), causal, alignment last\n"
            "\n"
            "item 0, head 0 (key/value head 0), query 0 at position 2: q = (1.0000, 1.0000)\n"
            "  key  k                    q.k  scaled  biased  weight  v\n"
            "    0  (1.0000, 0.0000)  1.0000  0.7071  0.7071  0.2483  (1.0000, 0.0000)\n"
            "    1  (0.0000, 1.0000)  1.0000  0.7071  0.7071  0.2483  (0.0000, 1.0000)\n"
            "    2  (1.0000, 1.0000)  2.0000  1.4142  1.4142  0.5035  (1.0000, 1.0000)\n"
            "  weights sum to 1.0000, LSE 2.1004\n"
            "  output (0.7517, 0.7517)\n");
}

TEST(ExplainTest, FlagsChangeAnExample) {
  FakeServer server;
  const Outcome unscaled = RunCommandLine(
      {"explain", "--example", "causal-step", "--scale", "1", "--server", server.target()});
  EXPECT_THAT(unscaled.out, HasSubstr("0.5761"));
  const Outcome capped = RunCommandLine({"explain", "--example", "self-attention", "--softcap", "2",
                                         "--no-causal", "--server", server.target()});
  EXPECT_THAT(capped.out, HasSubstr("scaled  capped  biased"));
  EXPECT_THAT(capped.out, ::testing::Not(HasSubstr("-inf")));
}

TEST(ExplainTest, ShowsExcludedKeys) {
  FakeServer server;
  const Outcome outcome =
      RunCommandLine({"explain", "--example", "self-attention", "--server", server.target()});
  EXPECT_THAT(outcome.out, HasSubstr("-inf  0.0000"));
}

TEST(ExplainTest, ListsItsExamplesWithoutAServer) {
  const Outcome outcome = RunCommandLine({"explain", "--list"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("three-keys"));
  const Outcome unknown = RunCommandLine({"explain", "--example", "nonsense"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there are: causal-step, "));
}

TEST(ExplainTest, PassesOnWhyTheServerRefuses) {
  FakeServer server;
  const Outcome outcome = RunCommandLine(
      {"explain", "--example", "causal-step", "--softcap", "-1", "--server", server.target()});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("INVALID_ARGUMENT: options.softcap: "));
}

}  // namespace
}  // namespace attend::cli

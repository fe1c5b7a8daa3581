// What the attend command says when something is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/client/sdpa_fixture.h"

namespace attend::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(UsageErrorTest, IsJsonWhereJsonIsAskedFor) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"info", "--timeout", "-1", "--json"},
        {"--json", "info", "--no-such-flag"},
        {"--json"},
        {"infp", "--json"},
        {"sdpa", "--json", "--layout", "sideways"},
        {"sdpa", "--json", "--scale"}}) {
    const Outcome outcome = RunCommandLine(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.error()["code"], "INVALID_ARGUMENT") << outcome.err;
    EXPECT_THAT(outcome.error()["message"].get<std::string>(), HasSubstr("see attend"));
  }
}

TEST(UsageErrorTest, IsTextOtherwise) {
  EXPECT_THAT(RunCommandLine({"info", "--timeout", "-1"}).err,
              AllOf(StartsWith("attend: --timeout: "), HasSubstr("; see attend info --help\n")));
}

TEST(UsageErrorTest, NamesTheCommandThatThereIsNot) {
  EXPECT_EQ(RunCommandLine({"--server", "x:1", "infp"}).err,
            "attend: no such command: infp, did you mean info?; there are: sdpa, explain, health, "
            "info, demo; see attend --help\n");
  EXPECT_THAT(RunCommandLine({}).err, StartsWith("attend: name a command; there are: sdpa, "));
  EXPECT_THAT(RunCommandLine({"completely-else"}).err,
              AllOf(HasSubstr("no such command: completely-else; there are: "),
                    Not(HasSubstr("did you mean"))));
}

TEST(UsageErrorTest, NamesTheFlagThatThereIsNot) {
  EXPECT_EQ(RunCommandLine({"sdpa", "--qeury=a.npy"}).err,
            "attend: no such flag: --qeury, did you mean --query?; see attend sdpa --help\n");
  EXPECT_EQ(RunCommandLine({"--sever", "x:1"}).err,
            "attend: no such flag: --sever, did you mean --server?; see attend --help\n");
  EXPECT_THAT(RunCommandLine({"info", "more"}).err,
              HasSubstr("\"more\" was not expected behind info"));
}

TEST_F(SdpaTest, AFlagThatIsNeitherTrueNorFalseIsRefused) {
  for (const char* flag : {"--causal=maybe", "--no-causal=zz"}) {
    const Outcome outcome = SdpaOnInputs({flag});
    EXPECT_EQ(outcome.code, 2) << flag;
    EXPECT_THAT(outcome.err, HasSubstr("causal")) << flag;
  }
  EXPECT_EQ(SdpaOnInputs({"--causal", "--no-causal"}).code, 2);
}

TEST_F(SdpaTest, ARefusalNamesTheFlagAndTheFile) {
  const Tensor other = Tensor::FromFloats(DType::kFloat32, {1, 2, 3, 5}, std::vector<float>(30));
  ASSERT_TRUE(WriteNpy(Path("other.npy"), other.view()).ok());
  const std::vector<std::string> flags = {"--input", Path("all.safetensors"), "--key",
                                          Path("other.npy")};
  const Outcome text = Sdpa(flags);
  EXPECT_EQ(text.code, 4);
  EXPECT_THAT(text.err, AllOf(HasSubstr("INVALID_ARGUMENT: key.shape"),
                              HasSubstr(" was given by --key " + Path("other.npy") + "\n")));
  std::vector<std::string> json = flags;
  json.push_back("--json");
  EXPECT_EQ(Sdpa(json).error()["fields"][0]["given_by"], "--key " + Path("other.npy"));
  EXPECT_THAT(SdpaOnInputs({"--query-offsets", "1,2,3"}).err,
              HasSubstr("options.query_offsets was given by --query-offsets 1,2,3\n"));
  EXPECT_THAT(SdpaOnInputs({"--layout", "packed"}).err,
              HasSubstr("query.shape was given by --input " + Path("all.safetensors")));
}

TEST(ConnectionErrorTest, NamesTheFlagAndNotTheClientsOption) {
  const Outcome text = RunCommandLine({"info", "--shared-memory", "64MiB"});
  EXPECT_EQ(text.code, 2);
  EXPECT_THAT(text.err, AllOf(StartsWith("attend: --shared-memory: is 67108864, but "),
                              Not(HasSubstr("shared_memory_bytes"))));
  const Outcome json = RunCommandLine({"info", "--shared-memory", "64MiB", "--json"});
  EXPECT_EQ(json.error()["fields"][0]["field"], "--shared-memory");
  EXPECT_THAT(RunCommandLine({"info", "--server", ""}).err, StartsWith("attend: --server: "));
}

TEST(ConnectionErrorTest, TellsWhatItWaitedForInVain) {
  const std::string target = DeadTarget();
  const std::vector<std::string> arguments = {"health", "--wait",   "--timeout",
                                              "0.05",   "--server", target};
  const Outcome text = RunCommandLine(arguments);
  EXPECT_EQ(text.code, 5);
  EXPECT_THAT(
      text.err,
      AllOf(HasSubstr(absl::StrCat("Waited 0.05 seconds for ", target, ". Its last state: ")),
            HasSubstr("refused")));
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  const nlohmann::json error = RunCommandLine(with_json).error();
  EXPECT_EQ(error["server"], target);
  EXPECT_EQ(error["waited_seconds"], 0.05);
  EXPECT_THAT(error["last_state"].get<std::string>(), HasSubstr("refused"));
}

TEST_F(SdpaTest, TellsThatTheServerItWaitedForIsThere) {
  server_.service().HoldCalls();
  const Outcome outcome = SdpaOnInputs({"--timeout", "0.05", "--wait"});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("Waited 0.05 seconds for " + server_.target() +
                                     ". Its last state: reachable, health SERVING\n"));
}

}  // namespace
}  // namespace attend::cli

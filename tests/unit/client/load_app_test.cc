// The attend-load command against a server that computes slowly and misbehaves on request.
#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "client/load/app.h"
#include "tests/unit/client/cli_fixture.h"
#include "tests/unit/client/fake_server.h"

namespace attend::load {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A request that the fake server's float64 reference answers at once.
constexpr char kSmall[] = "length=4,query_heads=2,kv_heads=1,head_dim=8,causal";

class LoadAppTest : public cli::TempFolderTest {
 protected:
  cli::Outcome RunLoad(std::vector<std::string> arguments,
                       const std::atomic<bool>* stop = nullptr) {
    if (std::find(arguments.begin(), arguments.end(), "--server") == arguments.end()) {
      arguments.insert(arguments.begin(), {"--server", server_.target()});
    }
    std::vector<const char*> argv = {"attend-load"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    std::ostringstream out;
    std::ostringstream err;
    const int code =
        load::Run(static_cast<int>(argv.size()), argv.data(),
                  {.out = out, .err = err, .show_progress = show_progress_, .stop = stop});
    return {code, out.str(), err.str()};
  }

  nlohmann::json ReadJson(const std::string& name) const {
    std::ifstream file(Path(name));
    return nlohmann::json::parse(file);
  }

  FakeServer server_;
  bool show_progress_ = false;
};

TEST_F(LoadAppTest, ClosedLoopReportsAndVerifies) {
  const cli::Outcome outcome = RunLoad({"--warmup", "0", "--duration", "200ms", "--in-flight", "3",
                                        "--work", kSmall, "--json", Path("load.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("latency"), HasSubstr("0 wrong")));
  const nlohmann::json json = ReadJson("load.json");
  EXPECT_GT(json["answered_per_second"], 0);
  EXPECT_EQ(json["verification"]["checked"], 32);
  EXPECT_EQ(json["load"]["loop"], "closed");
  EXPECT_EQ(json["server"]["name"], "fake");
  EXPECT_EQ(json["passed"], true);
  EXPECT_EQ(server_.service().requests().front().query().shape(1), 2);
}

TEST_F(LoadAppTest, AWrongAnswerIsFound) {
  v1::AttendResponse wrong;
  wrong.mutable_output()->set_dtype(v1::DATA_TYPE_FLOAT32);
  for (const int size : {1, 2, 4, 8}) wrong.mutable_output()->add_shape(size);
  wrong.mutable_output()->set_data(std::string(64 * sizeof(float), '\0'));
  server_.service().Answer(wrong);
  const cli::Outcome outcome =
      RunLoad({"--warmup", "0", "--duration", "100ms", "--work", kSmall, "--verify", "2"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("2 wrong"), HasSubstr("first wrong answer: --work"),
                                 HasSubstr("FAILED: wrong answers")));
}

TEST_F(LoadAppTest, AnAnswerOfAnotherShapeIsWrong) {
  server_.service().AnswerZeros(64);
  const cli::Outcome outcome = RunLoad({"--warmup", "0", "--duration", "100ms", "--work", kSmall});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("the answer's output has shape [64]"));
}

TEST_F(LoadAppTest, AnErrorThatIsNotTheCallersFailsTheRunUnlessAllowed) {
  const std::vector<std::string> arguments = {"--warmup", "0",    "--duration",    "100ms",
                                              "--work",   kSmall, "--allow-errors"};
  const auto run = [&](const char* allowed) {
    server_.service().FailNext(1, grpc::Status(grpc::StatusCode::INTERNAL, "a bug"));
    std::vector<std::string> all = arguments;
    all.push_back(allowed);
    return RunLoad(all);
  };
  const cli::Outcome outcome = run("0");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("a bug"), HasSubstr("--allow-errors")));
  EXPECT_EQ(run("1").code, 0);
}

TEST_F(LoadAppTest, OpenLoopDropsWhatWouldExceedTheBoundAndSaysSo) {
  server_.service().HoldCalls();
  const cli::Outcome outcome =
      RunLoad({"--warmup", "0", "--duration", "200ms", "--rate", "1000", "--arrivals", "constant",
               "--max-in-flight", "5", "--work", std::string(kSmall) + ",deadline=300ms", "--json",
               Path("load.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("(not sent)"));
  const nlohmann::json json = ReadJson("load.json");
  EXPECT_EQ(json["calls"], 200);
  EXPECT_EQ(json["dropped"], 195);
  EXPECT_EQ(json["codes"]["DEADLINE_EXCEEDED"]["calls"], 5);
  EXPECT_EQ(json["codes"]["DEADLINE_EXCEEDED"]["errors"], 0);
  EXPECT_EQ(json["goodput_per_second"], 0);
  EXPECT_EQ(server_.service().attempts(), 5);
}

TEST_F(LoadAppTest, GivenUpCallsAreNoErrors) {
  server_.service().HoldCalls();
  const cli::Outcome outcome =
      RunLoad({"--warmup", "0", "--duration", "100ms", "--cancel", "1", "--cancel-within", "10ms",
               "--work", kSmall, "--json", Path("load.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const nlohmann::json json = ReadJson("load.json");
  EXPECT_GT(json["codes"]["CANCELLED"]["calls"], 1);
  EXPECT_EQ(json["codes"]["CANCELLED"]["errors"], 0);
}

TEST_F(LoadAppTest, PrioritiesAndConnectionsReachTheServer) {
  EXPECT_EQ(RunLoad({"--warmup", "0", "--duration", "100ms", "--connections", "2", "--in-flight",
                     "2", "--work", std::string(kSmall) + ",priority=high"})
                .code,
            0);
  EXPECT_EQ(server_.service().peers(), 2);
  EXPECT_EQ(server_.service().requests().front().priority(), v1::PRIORITY_HIGH);
}

TEST_F(LoadAppTest, ARunThatIsStoppedStillReports) {
  const std::atomic<bool> stop{true};
  const cli::Outcome outcome = RunLoad({"--duration", "1h", "--work", kSmall}, &stop);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("measured 0.00 s"));
}

TEST_F(LoadAppTest, ShowsProgressOnlyWhereItIsAskedTo) {
  const std::vector<std::string> arguments = {"--warmup", "0",      "--duration",
                                              "700ms",    "--work", kSmall};
  EXPECT_EQ(RunLoad(arguments).err, "");
  show_progress_ = true;
  const std::string err = RunLoad(arguments).err;
  EXPECT_THAT(err, HasSubstr(" in flight  "));
  EXPECT_TRUE(err.ends_with("\r\x1b[K")) << "the line is still there";
}

TEST_F(LoadAppTest, SweepMeasuresRatesAndFindsTheSaturation) {
  const cli::Outcome outcome = RunLoad({"sweep", "--warmup", "0", "--duration", "100ms", "--rates",
                                        "20,40", "--work", kSmall, "--json", Path("sweep.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("goodput/s"));
  const nlohmann::json json = ReadJson("sweep.json");
  EXPECT_GE(json["points"].size(), 2u);
  EXPECT_TRUE(json.contains("saturation_per_second"));
  EXPECT_EQ(json["load"]["connections"], 1);
}

// Whatever the server can do in time, it can do something.
TEST_F(LoadAppTest, SweepBeginsThoughNoAnswerComesInTime) {
  const cli::Outcome outcome =
      RunLoad({"sweep", "--warmup", "0", "--duration", "100ms", "--refinements", "0", "--work",
               std::string(kSmall) + ",deadline=1us", "--json", Path("sweep.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_GT(ReadJson("sweep.json")["closed_loop_per_second"], 0);
  EXPECT_EQ(ReadJson("sweep.json")["saturated"], true);
}

TEST_F(LoadAppTest, StreamCarriesTheLoad) {
  const cli::Outcome outcome =
      RunLoad({"--stream", "--warmup", "0", "--duration", "200ms", "--in-flight", "4", "--work",
               kSmall, "--json", Path("load.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const nlohmann::json json = ReadJson("load.json");
  EXPECT_EQ(json["load"]["transport"], "stream");
  EXPECT_EQ(json["load"]["shared_memory_bytes"], 0);
  EXPECT_GT(json["answered_per_second"], 0);
  EXPECT_EQ(server_.service().streams(), 1);
}

TEST_F(LoadAppTest, WrongFlagsAreUsageErrorsThatNameThem) {
  const auto error_of = [this](std::vector<std::string> arguments) {
    const cli::Outcome outcome = RunLoad(std::move(arguments));
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(error_of({"--rate", "5", "--in-flight", "2"}), HasSubstr("--in-flight"));
  EXPECT_THAT(error_of({"--duration", "0"}), HasSubstr("--duration: is 0"));
  EXPECT_THAT(error_of({"--warmup", "soon"}), HasSubstr("--warmup: is \"soon\""));
  EXPECT_THAT(error_of({"--work", "length=x"}), HasSubstr("length=x"));
  EXPECT_THAT(error_of({"--json", Path("none/load.json")}), HasSubstr("--json: cannot write"));
  EXPECT_THAT(error_of({"sweep", "--rate", "5"}), HasSubstr("give --rates"));
  EXPECT_THAT(error_of({"--shared-memory", "64MiB"}), HasSubstr("unix:/path"));
  EXPECT_THAT(error_of({"--shared-memory", "much"}), HasSubstr("--shared-memory"));
  EXPECT_THAT(error_of({"--max-message-bytes", "1KiB"}), HasSubstr("--max-message-bytes, 1024"));
  EXPECT_EQ(error_of({"--rat", "3"}),
            "attend-load: no such flag: --rat, did you mean --rate?; see attend-load --help\n");
  EXPECT_THAT(error_of({"swep"}), HasSubstr("no such command: swep, did you mean sweep?"));
  EXPECT_EQ(server_.service().attempts(), 0);
}

TEST_F(LoadAppTest, AServerThatIsNotThereIsToldWithAdvice) {
  const cli::Outcome outcome = RunLoad({"--server", "127.0.0.1:1"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("attend-load: UNAVAILABLE"),
                                 HasSubstr("Is attend-server running at 127.0.0.1:1")));
}

TEST_F(LoadAppTest, HelpTellsKeysExamplesAndWhatSaturationIs) {
  const cli::Outcome help = RunLoad({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("lognormal:MEDIAN:SIGMA"), HasSubstr("Examples:"),
                              HasSubstr("Exit codes:"), HasSubstr("ATTEND_SERVER")));
  EXPECT_THAT(RunLoad({"sweep", "--help"}).out, HasSubstr("at least 0.95 of the offered load"));
}

}  // namespace
}  // namespace attend::load

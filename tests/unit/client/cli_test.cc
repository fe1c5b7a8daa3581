// The attend command: flags, files, output and exit codes.
#include <civetweb.h>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attend/v1/error.pb.h"
#include "client/cli/http_get.h"
#include "core/base/npy.h"
#include "tests/unit/client/cli_fixture.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/sdpa_fixture.h"

namespace attend::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(SdpaTest, PrintsASmallResultAndChecksIt) {
  const Outcome outcome = Sdpa({"--query", Path("q.npy"), "--key", Path("q.npy"), "--value",
                                Path("all.safetensors:value"), "--lse", "--check"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("output FLOAT32 [1, 2, 3, 4]\n  [0, 0, 0]  "));
  EXPECT_THAT(outcome.out, HasSubstr("lse FLOAT32 [1, 2, 3]\n"));
  EXPECT_THAT(outcome.out, HasSubstr(": passed\n"));
}

TEST_F(SdpaTest, CheckFailsAWrongAnswer) {
  v1::AttendResponse wrong;
  wrong.mutable_output()->set_dtype(v1::DATA_TYPE_FLOAT32);
  for (const int size : {1, 2, 3, 4}) wrong.mutable_output()->add_shape(size);
  wrong.mutable_output()->set_data(std::string(96, '\0'));
  server_.service().Answer(wrong);
  const Outcome outcome = SdpaOnInputs({"--check"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr(": FAILED\n"));
}

TEST_F(SdpaTest, AnswersInJson) {
  const Outcome outcome = SdpaOnInputs({"--json", "--check", "--causal", "--scores", "biased"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.json();
  EXPECT_EQ(json["output"]["shape"], nlohmann::json({1, 2, 3, 4}));
  EXPECT_EQ(json["output"]["data"].size(), 24u);
  EXPECT_EQ(json["scores"]["data"][1], "-inf");
  EXPECT_EQ(json["stats"]["server"], "fake");
  EXPECT_EQ(json["check"]["passed"], true);
}

TEST_F(SdpaTest, SendsEveryFlag) {
  const std::vector<std::byte> mask(9, std::byte{1});
  ASSERT_TRUE(
      WriteNpy(Path("mask.npy"), TensorView::Dense(DType::kBool, {3, 3}, mask.data())).ok());
  const Tensor bias = Tensor::FromFloats(DType::kFloat32, {1, 3}, std::vector<float>{0, 1, 2});
  ASSERT_TRUE(WriteNpy(Path("bias.npy"), bias.view()).ok());
  const Outcome outcome = SdpaOnInputs({"--causal",
                                        "--query-offsets",
                                        "-1",
                                        "--window-left",
                                        "2",
                                        "--window-right",
                                        "0",
                                        "--scale",
                                        "-0.5",
                                        "--softcap",
                                        "20",
                                        "--boolean-mask",
                                        Path("mask.npy"),
                                        "--additive-mask",
                                        Path("bias.npy"),
                                        "--alibi-slopes",
                                        "0.5,0.25",
                                        "--sinks",
                                        "0,-inf",
                                        "--query-lengths",
                                        "2",
                                        "--kv-lengths",
                                        "3",
                                        "--dtype",
                                        "bfloat16",
                                        "--output-dtype",
                                        "float32",
                                        "--priority",
                                        "high",
                                        "--lse",
                                        "--weights",
                                        "--scores",
                                        "capped",
                                        "--check"});
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  const v1::AttendRequest request = LastRequest();
  EXPECT_TRUE(request.options().causal());
  EXPECT_EQ(request.options().alignment(), v1::ALIGNMENT_OFFSETS);
  EXPECT_THAT(request.options().query_offsets(), ElementsAre(-1));
  EXPECT_EQ(request.options().window_left(), 2);
  EXPECT_TRUE(request.options().has_window_right());
  EXPECT_EQ(request.options().scale(), -0.5f);
  EXPECT_EQ(request.options().softcap(), 20);
  EXPECT_THAT(request.boolean_mask().shape(), ElementsAre(3, 3));
  EXPECT_THAT(request.additive_mask().shape(), ElementsAre(1, 3));
  EXPECT_THAT(request.options().alibi_slopes().shape(), ElementsAre(2));
  EXPECT_THAT(request.options().sinks().shape(), ElementsAre(2));
  EXPECT_THAT(request.query_lengths(), ElementsAre(2));
  EXPECT_THAT(request.kv_lengths(), ElementsAre(3));
  EXPECT_EQ(request.query().dtype(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(request.output().dtype(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(request.output().scores(), v1::SCORE_STAGE_CAPPED);
  EXPECT_EQ(request.priority(), v1::PRIORITY_HIGH);
}

TEST_F(SdpaTest, SendsTheLayout) {
  const Outcome outcome = SdpaOnInputs({"--layout", "batch-length-heads", "--check"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(LastRequest().layout(), v1::LAYOUT_BATCH_LENGTH_HEADS);
}

TEST_F(SdpaTest, InputErrorsAreUsageErrors) {
  const Outcome missing = Sdpa({"--query", Path("q.npy")});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--key: is missing"));
  const Outcome no_file =
      Sdpa({"--query", Path("none.npy"), "--key", Path("q.npy"), "--value", Path("q.npy")});
  EXPECT_EQ(no_file.code, 2);
  EXPECT_THAT(no_file.err, HasSubstr("none.npy"));
  const Outcome bad_output = SdpaOnInputs({"--output", Path("out.txt")});
  EXPECT_EQ(bad_output.code, 2);
  EXPECT_THAT(bad_output.err, HasSubstr("expected a name in .npy or .safetensors"));
  EXPECT_EQ(server_.service().attempts(), 0);
  EXPECT_EQ(SdpaOnInputs({"--layout", "sideways"}).code, 2);
  EXPECT_EQ(SdpaOnInputs({"--scale", "big"}).code, 2);
  EXPECT_EQ(SdpaOnInputs({"--no-such-flag"}).code, 2);
}

TEST_F(SdpaTest, ARefusalNamesTheFieldAndTheDelay) {
  const Outcome refused = SdpaOnInputs({"--window-left", "-3"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, HasSubstr("the request was refused: INVALID_ARGUMENT: "
                                     "options.window_left: "));
  const Outcome json = SdpaOnInputs({"--window-left", "-3", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.err)["error"]["fields"][0]["field"], "options.window_left");
  v1::RetryInfo info;
  info.mutable_retry_delay()->set_nanos(500'000'000);
  v1::Error error;
  error.add_details()->set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  error.mutable_details(0)->set_value(info.SerializeAsString());
  server_.service().FailNext(
      1, {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", error.SerializeAsString()},
      {{"grpc-retry-pushback-ms", "-1"}});
  const Outcome full = SdpaOnInputs({});
  EXPECT_EQ(full.code, 4);
  EXPECT_THAT(full.err, HasSubstr("try again in 0.500 seconds"));
}

TEST_F(SdpaTest, TimesOut) {
  server_.service().HoldCalls();
  const Outcome outcome = SdpaOnInputs({"--timeout", "0.05"});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("No answer from " + server_.target() +
                                     ". Allow more time with --timeout (now 0.05 seconds)"));
}

TEST(CommandLineTest, HelpNamesEveryCommandAndExitCode) {
  const Outcome outcome = RunCommandLine({"--help"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* word : {"sdpa", "explain", "health", "info", "demo", "--server", "ATTEND_SERVER",
                           "--timeout", "--json", "Exit codes:"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
  for (const char* command : {"sdpa", "explain", "health", "info", "demo"}) {
    EXPECT_EQ(RunCommandLine({command, "--help"}).code, 0) << command;
  }
  EXPECT_THAT(RunCommandLine({"--version"}).out, HasSubstr("attend "));
}

TEST(CommandLineTest, WrongUsageIsExitCode2) {
  EXPECT_EQ(RunCommandLine({}).code, 2);
  EXPECT_EQ(RunCommandLine({"nonsense"}).code, 2);
  EXPECT_EQ(RunCommandLine({"info", "--timeout", "-1"}).code, 2);
  EXPECT_EQ(RunCommandLine({"info", "--server", ""}).code, 2);
  EXPECT_EQ(RunCommandLine({"info", "--max-message-bytes", "0"}).code, 2);
}

TEST(CommandLineTest, AnUnreachableServerIsExitCode3AndSaysWhatToDo) {
  const std::string target = DeadTarget();
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"info"},
                                             {"health"},
                                             {"health", "--watch"},
                                             {"demo"},
                                             {"explain", "--example", "causal-step"}}) {
    std::vector<std::string> arguments = {"--server", target};
    arguments.insert(arguments.end(), command.begin(), command.end());
    const Outcome outcome = RunCommandLine(arguments);
    EXPECT_EQ(outcome.code, 3) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr(absl::StrCat("Is attend-server running at ", target)));
  }
}

TEST(CommandLineTest, TheEnvironmentNamesTheServerAndAFlagBeatsIt) {
  FakeServer server;
  setenv("ATTEND_SERVER", server.target().c_str(), 1);
  EXPECT_EQ(RunCommandLine({"health"}).code, 0);
  EXPECT_EQ(RunCommandLine({"health", "--server", DeadTarget()}).code, 3);
  unsetenv("ATTEND_SERVER");
}

TEST(HealthTest, TellsWhetherAServiceServes) {
  FakeServer server;
  const Outcome serving = RunCommandLine({"health", "--server", server.target()});
  EXPECT_EQ(serving.code, 0);
  EXPECT_EQ(serving.out, "SERVING\n");
  server.SetServing(false);
  const Outcome stopped = RunCommandLine(
      {"health", "attend.v1.AttentionService", "--json", "--server", server.target()});
  EXPECT_EQ(stopped.code, 1);
  EXPECT_EQ(stopped.out,
            "{\"service\":\"attend.v1.AttentionService\",\"status\":\"NOT_SERVING\"}\n");
  EXPECT_EQ(RunCommandLine({"health", "no.such.Service", "--server", server.target()}).code, 4);
}

TEST(InfoTest, ShowsWhatTheServerSays) {
  FakeServer server;
  const Outcome text = RunCommandLine({"info", "--server", server.target()});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("dtypes                      FLOAT32, BFLOAT16\n"));
  const Outcome json = RunCommandLine({"info", "--json", "--server", server.target()});
  EXPECT_EQ(json.json()["limits"]["max_head_dim"], 1024);
  EXPECT_EQ(json.json()["compute_threads"], 3);
}

TEST(InfoTest, LeavesNoFieldOfTheServersOut) {
  FakeServer server;
  const nlohmann::json info =
      RunCommandLine({"info", "--json", "--server", server.target()}).json();
  const std::string text = RunCommandLine({"info", "--server", server.target()}).out;
  const auto* const fields = v1::ServerInfo::descriptor();
  for (int i = 0; i < fields->field_count(); ++i) {
    EXPECT_TRUE(info.contains(fields->field(i)->name())) << fields->field(i)->name();
  }
  const auto* const limits = v1::Limits::descriptor();
  for (int i = 0; i < limits->field_count(); ++i) {
    EXPECT_TRUE(info["limits"].contains(limits->field(i)->name())) << limits->field(i)->name();
    EXPECT_THAT(text, HasSubstr("\n" + limits->field(i)->name() + " "));
  }
}

// An HTTP server that answers /metrics.
class MetricsServer {
 public:
  MetricsServer() {
    mg_init_library(0);
    const char* options[] = {"listening_ports", "127.0.0.1:0", "num_threads", "1", nullptr};
    context_ = mg_start(nullptr, nullptr, options);
    mg_set_request_handler(context_, "/metrics", Answer, nullptr);
  }
  ~MetricsServer() {
    mg_stop(context_);
    mg_exit_library();
  }
  std::string address() const {
    mg_server_port port{};
    EXPECT_EQ(mg_get_server_ports(context_, 1, &port), 1);
    return absl::StrCat("127.0.0.1:", port.port);
  }

 private:
  static int Answer(mg_connection* connection, void* /*data*/) {
    const std::string body =
        "# HELP attend_requests_total Requests.\n"
        "attend_requests_total{method=\"Attend\",code=\"OK\"} 5\n"
        "attend_requests_total{method=\"Attend\",code=\"CANCELLED\"} 0\n"
        "attend_request_seconds_bucket{le=\"1\"} 5\n"
        "process_open_fds 7\n";
    mg_send_http_ok(connection, "text/plain", static_cast<long long>(body.size()));
    mg_write(connection, body.data(), body.size());
    return 200;
  }

  mg_context* context_ = nullptr;
};

TEST(HttpGetTest, ReadsABodyAndReportsFailures) {
  const MetricsServer metrics;
  constexpr std::chrono::milliseconds kTimeout{10'000};
  const auto body = HttpGet(absl::StrCat("http://", metrics.address(), "/metrics"), kTimeout);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_THAT(*body, HasSubstr("process_open_fds 7"));
  EXPECT_EQ(HttpGet(absl::StrCat(metrics.address(), "/none"), kTimeout).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(HttpGet(DeadTarget(), kTimeout).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(HttpGet("nonsense", kTimeout).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DemoTest, ShowsTheStepTheCheckAndTheMetrics) {
  FakeServer server;
  const MetricsServer metrics;
  const Outcome outcome = RunCommandLine(
      {"demo", "--server", server.target(), "--length", "20", "--metrics-url", metrics.address()});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("weights 0.2483 0.2483 0.5035: as worked by hand\n"));
  EXPECT_THAT(outcome.out, HasSubstr("12 heads x 20 tokens x 64"));
  EXPECT_THAT(outcome.out, HasSubstr("15360 elements"));
  EXPECT_THAT(outcome.out, HasSubstr(": passed\n"));
  EXPECT_THAT(outcome.out, HasSubstr("attend_requests_total{method=\"Attend\",code=\"OK\"} 5\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("CANCELLED")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("_bucket")));
}

}  // namespace
}  // namespace attend::cli

#include <chrono>
#include <cmath>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/check.h"
#include "client/cli/commands.h"
#include "client/cli/examples.h"
#include "client/cli/http_get.h"
#include "client/cli/render.h"
#include "client/cli/steps.h"

namespace attend::cli {

namespace {

constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kMaxLength = 8192;  // the reference takes minutes from there on
constexpr std::int64_t kDim = 64;
constexpr std::chrono::milliseconds kMetricsTimeout{5000};
// Of the worked step, to four decimals.
constexpr float kStepWeights[] = {0.2483f, 0.2483f, 0.5035f};
constexpr float kFourDecimals = 0.5e-4f;

// What the demo has to say, as text or as JSON.
struct Report {
  Steps step;
  bool step_right = false;
  AttendStats stats;
  CheckReport check;
  std::vector<std::string> metrics;
  bool passed() const { return step_right && check.passed(); }
};

bool IsWorkedStep(const Steps& steps) {
  if (steps.queries.size() != 1 || steps.queries[0].weights.size() != std::size(kStepWeights)) {
    return false;
  }
  for (std::size_t i = 0; i < std::size(kStepWeights); ++i) {
    const float error = std::abs(steps.queries[0].weights[i] - kStepWeights[i]);
    if (!(error <= kFourDecimals)) return false;
  }
  return true;
}

absl::Status AskForStep(Client& client, const CallOptions& call_options, Report* report) {
  AttentionInput input;
  std::string title;
  absl::Status status = UseExample("causal-step", &input, &title);
  if (!status.ok()) return status;
  absl::StatusOr<Steps> steps = FetchSteps(client, input.args, call_options);
  if (!steps.ok()) return steps.status();
  report->step = *std::move(steps);
  report->step_right = IsWorkedStep(report->step);
  return absl::OkStatus();
}

Tensor RandomTensor(std::int64_t length, std::mt19937_64* random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(kHeads * length * kDim));
  for (float& value : values) value = normal(*random);
  return Tensor::FromFloats(DType::kFloat32, {1, kHeads, length, kDim}, values);
}

absl::Status AskForLargeRequest(Client& client, const DemoOptions& options,
                                const CallOptions& call_options, Report* report) {
  std::mt19937_64 random(options.seed);
  AttentionInput input;
  input.args.query = input.Keep(RandomTensor(options.length, &random));
  input.args.key = input.Keep(RandomTensor(options.length, &random));
  input.args.value = input.Keep(RandomTensor(options.length, &random));
  const absl::StatusOr<AttendResult> result = client.Attend(input.args, call_options);
  if (!result.ok()) return result.status();
  const absl::StatusOr<CheckReport> check = CheckAgainstReference(input.args, *result);
  if (!check.ok()) return check.status();
  report->stats = result->stats;
  report->check = *check;
  return absl::OkStatus();
}

// A line such as `attend_requests_total{method="Attend",code="OK"} 5`, of ours and not zero;
// buckets of histograms are left out.
bool IsWorthShowing(absl::string_view line) {
  if (!absl::StartsWith(line, "attend_") || absl::StrContains(line, "_bucket{")) return false;
  double value = 0;
  return absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value) && value != 0;
}

absl::Status AskForMetrics(const std::string& url, Report* report) {
  const absl::StatusOr<std::string> text = HttpGet(url, kMetricsTimeout);
  if (!text.ok()) return text.status();
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (IsWorthShowing(line)) report->metrics.emplace_back(line);
  }
  return absl::OkStatus();
}

void PrintText(const DemoOptions& options, const Report& report, std::ostream& out) {
  out << "1. One causal step, every number from the server\n" << RenderSteps(report.step);
  out << "  weights";
  for (const float weight : report.step.queries[0].weights) out << " " << FormatNumber(weight);
  out << (report.step_right ? ": as worked by hand\n" : ": NOT as worked by hand\n");
  out << "\n2. " << kHeads << " heads x " << options.length << " tokens x " << kDim
      << ", random float32 (seed " << options.seed << ")\n";
  out << RenderStats(report.stats) << "\n" << RenderCheck(report.check) << "\n";
  if (options.metrics_url.empty()) return;
  out << "\n3. The server's own metrics, from " << options.metrics_url << "\n";
  for (const std::string& line : report.metrics) out << line << "\n";
}

void PrintJson(const Report& report, std::ostream& out) {
  const Json json = {{"step", ToJson(report.step)},
                     {"step_passed", report.step_right},
                     {"stats", ToJson(report.stats)},
                     {"check", ToJson(report.check)},
                     {"metrics", report.metrics}};
  out << json.dump() << "\n";
}

}  // namespace

void AddDemoFlags(CLI::App* app, DemoOptions* options) {
  app->add_option("--seed", options->seed, "Of the random request")->capture_default_str();
  app->add_option("--length", options->length, "Tokens of the random request")
      ->check(CLI::Range(std::int64_t{0}, kMaxLength))
      ->capture_default_str();
  app->add_option("--metrics-url", options->metrics_url,
                  "Also print the server's metrics: its admin HOST:PORT, or http://HOST:PORT/PATH");
}

int RunDemo(const DemoOptions& options, const Context& context) {
  const auto client = context.MakeClient();
  if (!client.ok()) return context.InputError(client.status());
  const CallOptions call_options = context.MakeCallOptions();
  Report report;
  absl::Status status = AskForStep(**client, call_options, &report);
  if (status.ok()) status = AskForLargeRequest(**client, options, call_options, &report);
  if (!status.ok()) return context.CallError(status);
  if (!options.metrics_url.empty()) status = AskForMetrics(options.metrics_url, &report);
  if (!status.ok()) return context.InputError(status);
  if (context.global.json) {
    PrintJson(report, context.out);
  } else {
    PrintText(options, report, context.out);
  }
  return report.passed() ? kOk : kCheckFailed;
}

}  // namespace attend::cli

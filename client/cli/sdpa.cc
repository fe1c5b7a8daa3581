#include <optional>
#include <string>

#include "client/cli/check.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/render.h"
#include "client/cli/tensor_files.h"

namespace attend::cli {

namespace {

CallPriority ParsePriority(const std::string& name) {
  if (name == "high") return CallPriority::kHigh;
  return name == "low" ? CallPriority::kLow : CallPriority::kNormal;
}

absl::Status LoadInput(const SdpaOptions& options, AttentionInput* input) {
  absl::Status status = CheckInputsGiven(options.attention);
  if (status.ok()) status = ApplyFlags(options.attention, input);
  if (status.ok() && !options.output.empty()) status = CheckResultPath(options.output);
  input->args.output.lse = options.lse;
  input->args.output.weights = options.weights;
  input->args.output.scores = ParseScoreStage(options.scores);
  return status;
}

void PrintText(const SdpaOptions& options, const AttendResult& result,
               const std::optional<CheckReport>& report, std::ostream& out) {
  std::string written;
  for (const auto& [name, tensor] : TensorsOf(result)) {
    if (options.output.empty()) {
      out << RenderTensor(name, *tensor);
    } else if (const std::string file = ResultFile(options.output, name); file != written) {
      out << "written to " << file << "\n";
      written = file;
    }
  }
  out << RenderStats(result.stats) << "\n";
  if (report.has_value()) out << RenderCheck(*report) << "\n";
}

void PrintJson(const SdpaOptions& options, const Notes& notes, const AttendResult& result,
               const std::optional<CheckReport>& report, std::ostream& out) {
  Json json = Json::object();
  for (const auto& [name, tensor] : TensorsOf(result)) {
    if (options.output.empty()) {
      json[name] = ToJson(*tensor);
    } else {
      json["files"][name] = ResultFile(options.output, name);
    }
  }
  json["stats"] = ToJson(result.stats);
  if (report.has_value()) json["check"] = ToJson(*report);
  json["notes"] = notes;
  out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace

void AddSdpaFlags(CLI::App* app, SdpaOptions* options) {
  AddAttentionFlags(app, &options->attention);
  constexpr const char* kGroup = "Results";
  app->add_flag("--lse", options->lse, "Also the log-sum-exp of each row's scores")->group(kGroup);
  app->add_flag("--weights", options->weights, "Also the softmax weights")->group(kGroup);
  app->add_option("--scores", options->scores, "Also the scores: scaled, capped or biased")
      ->check(CLI::IsMember({"scaled", "capped", "biased"}))
      ->group(kGroup);
  app->add_option("--output", options->output,
                  "FILE.safetensors for all results, or FILE.npy for the output and FILE.lse.npy, "
                  "FILE.weights.npy and FILE.scores.npy for what else is asked for (default: print "
                  "them)")
      ->group(kGroup);
  app->add_flag("--check", options->check,
                "Compare with the float64 reference, computed here; exit code 1 if it differs")
      ->group(kGroup);
  app->add_option("--priority", options->priority, "Among requests that compete")
      ->check(CLI::IsMember({"normal", "high", "low"}))
      ->capture_default_str();
}

int RunSdpa(const SdpaOptions& options, const Context& context) {
  AttentionInput input;
  absl::Status status = LoadInput(options, &input);
  if (!status.ok()) return context.InputError(status);
  context.PrintNotes(input.notes);
  const FieldOrigins origins = options.attention.Origins();
  const auto client = context.MakeClient();
  if (!client.ok()) return context.InputError(client.status());
  CallOptions call_options = context.MakeCallOptions();
  call_options.priority = ParsePriority(options.priority);
  const absl::StatusOr<AttendResult> result = (*client)->Attend(input.args, call_options);
  if (!result.ok()) return context.CallError(result.status(), origins);
  std::optional<CheckReport> report;
  if (options.check) {
    const absl::StatusOr<CheckReport> checked = CheckAgainstReference(input.args, *result);
    if (!checked.ok()) return context.CallError(checked.status(), origins);
    report = *checked;
  }
  if (!options.output.empty()) status = WriteResult(options.output, *result);
  if (!status.ok()) return context.InputError(status);
  if (context.global.json) {
    PrintJson(options, input.notes, *result, report, context.out);
  } else {
    PrintText(options, *result, report, context.out);
  }
  return report.has_value() && !report->passed() ? kCheckFailed : kOk;
}

}  // namespace attend::cli

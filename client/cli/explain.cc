#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/examples.h"
#include "client/cli/steps.h"
#include "core/base/status.h"

namespace attend::cli {

namespace {

constexpr std::int64_t kMaxScores = 4096;  // more than anybody reads

absl::Status LoadInput(const ExplainOptions& options, AttentionInput* input, std::string* title) {
  absl::Status status = options.example.empty() ? CheckInputsGiven(options.attention)
                                                : UseExample(options.example, input, title);
  if (status.ok()) status = ApplyFlags(options.attention, input);
  if (!status.ok()) return status;
  const std::int64_t queries = input->args.query.num_elements();
  const std::int64_t keys = input->args.key.num_elements();
  const Dims& shape = input->args.query.shape;
  const std::int64_t dim = shape.empty() || shape.back() == 0 ? 1 : shape.back();
  if (queries / dim > kMaxScores || keys / dim > kMaxScores ||
      (queries / dim) * (keys / dim) > kMaxScores) {
    return InvalidField("--query",
                        absl::StrCat("and --key have ", queries / dim, " and ", keys / dim,
                                     " rows; to explain each step, their product may be "
                                     "at most ",
                                     kMaxScores, " (attend sdpa has no such limit)"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddExplainFlags(CLI::App* app, ExplainOptions* options) {
  app->add_option("--example", options->example,
                  "A built-in worked example instead of files; further flags change it");
  app->add_flag("--list", options->list, "List the examples");
  AddAttentionFlags(app, &options->attention);
}

int RunExplain(const ExplainOptions& options, const Context& context) {
  if (options.list) {
    context.out << ListExamples();
    return kOk;
  }
  AttentionInput input;
  std::string title;
  const absl::Status status = LoadInput(options, &input, &title);
  if (!status.ok()) return context.InputError(status);
  context.PrintNotes(input.notes);
  const auto client = context.MakeClient();
  if (!client.ok()) return context.InputError(client.status());
  const absl::StatusOr<Steps> steps = FetchSteps(**client, input.args, context.MakeCallOptions());
  if (!steps.ok()) return context.CallError(steps.status(), options.attention.Origins());
  if (context.global.json) {
    Json json = ToJson(*steps);
    if (!options.example.empty()) json["example"] = options.example;
    json["notes"] = input.notes;
    context.out << json.dump() << "\n";
    return kOk;
  }
  if (!title.empty()) context.out << title << "\n";
  context.out << RenderSteps(*steps);
  return kOk;
}

}  // namespace attend::cli

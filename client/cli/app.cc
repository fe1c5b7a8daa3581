#include "client/cli/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "client/cli/commands.h"
#include "client/cli/context.h"
#include "client/cli/usage_error.h"

namespace attend::cli {

namespace {

// Every option of the command line, in one place that outlives its parsing.
struct CommandLine {
  GlobalOptions global;
  SdpaOptions sdpa;
  ExplainOptions explain;
  HealthOptions health;
  DemoOptions demo;
};

void AddGlobalFlags(CLI::App* app, GlobalOptions* global) {
  AddConnectionFlags(app, global);
  app->add_flag("--json", global->json, "Results (and errors) as one line of JSON");
}

CLI::App* AddCommand(CLI::App* app, const char* name, const char* description) {
  CLI::App* command = app->add_subcommand(name, description);
  command->fallthrough();  // the general options may stand behind the command as well
  command->footer(
      "General options (--server, --timeout, --wait, --max-message-bytes, --stream, "
      "--shared-memory, --json): see "
      "attend --help");
  return command;
}

void AddCommands(CLI::App* app, CommandLine* line) {
  AddSdpaFlags(AddCommand(app, "sdpa", "Attention on tensors in files"), &line->sdpa);
  AddExplainFlags(AddCommand(app, "explain",
                             "Every step of a small attention: products, scores, weights, output"),
                  &line->explain);
  AddHealthFlags(AddCommand(app, "health", "Whether the server, or one of its services, serves"),
                 &line->health);
  AddCommand(app, "info", "What the server is and what it accepts");
  AddDemoFlags(
      AddCommand(app, "demo", "A worked step and a larger request, checked against the reference"),
      &line->demo);
}

int RunCommand(const std::string& name, const CommandLine& line, const Context& context) {
  if (name == "sdpa") return RunSdpa(line.sdpa, context);
  if (name == "explain") return RunExplain(line.explain, context);
  if (name == "health") return RunHealth(line.health, context);
  if (name == "info") return RunInfo(context);
  return RunDemo(line.demo, context);
}

int UsageError(const CLI::App& app, const CLI::ParseError& error, const Context& context) {
  return context.InputError(absl::InvalidArgumentError(UsageErrorText(app, error)));
}

// Whether --json was given, which CLI11 does not tell of a command line that it stumbled over.
bool WantsJson(int argc, const char* const* argv) {
  return std::find(argv + 1, argv + argc, std::string("--json")) != argv + argc;
}

}  // namespace

int Run(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  CLI::App app("Attention from an attend server.", "attend");
  app.set_version_flag("--version", "attend " ATTEND_VERSION);
  app.require_subcommand(1);
  app.footer(ExitCodeHelp());
  CommandLine line;
  AddGlobalFlags(&app, &line.global);
  AddCommands(&app, &line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, out, err);  // --help and --version
    line.global.json = WantsJson(argc, argv);
    return UsageError(app, error, {line.global, out, err});
  }
  return RunCommand(app.get_subcommands().front()->get_name(), line, {line.global, out, err});
}

}  // namespace attend::cli

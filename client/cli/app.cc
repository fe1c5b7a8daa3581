#include "client/cli/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/context.h"
#include "core/base/suggest.h"

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

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// The flags that may stand where `command` (null: none) was given.
std::vector<std::string> FlagNames(const CLI::App& app, const CLI::App* command) {
  std::vector<std::string> names;
  for (const CLI::App* level : {&app, command}) {
    if (level == nullptr) continue;
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames())
        names.push_back(absl::StrCat("--", name));
    }
  }
  return names;
}

// What is wrong with a command line. CLI11 tells of what it does not know only that it was not
// expected, and of a command that it does not know only that one is needed.
std::string UsageErrorText(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const CLI::App* command = commands.empty() ? nullptr : commands.front();
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  // The two errors that a word which CLI11 does not know leads to.
  const bool of_words =
      code == CLI::ExitCodes::RequiredError || code == CLI::ExitCodes::ExtrasError;
  const std::string commands_there_are =
      absl::StrCat("; there are: ", absl::StrJoin(CommandNames(app), ", "));
  if (of_words && extras.empty() && command == nullptr) {
    return absl::StrCat("name a command", commands_there_are);
  }
  if (!of_words || extras.empty()) return error.what();
  const std::string& extra = extras.front();
  if (absl::StartsWith(extra, "-")) {
    const std::string flag = extra.substr(0, extra.find('='));
    return absl::StrCat("no such flag: ", flag, DidYouMean(flag, FlagNames(app, command)));
  }
  if (command != nullptr) {
    return absl::StrCat("\"", extra, "\" was not expected behind ", command->get_name());
  }
  return absl::StrCat("no such command: ", extra, DidYouMean(extra, CommandNames(app)),
                      commands_there_are);
}

int UsageError(const CLI::App& app, const CLI::ParseError& error, const Context& context) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const std::string command = commands.empty() ? "" : " " + commands.front()->get_name();
  return context.InputError(absl::InvalidArgumentError(
      absl::StrCat(UsageErrorText(app, error), "; see attend", command, " --help")));
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

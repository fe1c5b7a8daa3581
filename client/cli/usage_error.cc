#include "client/cli/usage_error.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/suggest.h"

namespace attend::cli {

namespace {

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
std::string WhatIsWrong(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const CLI::App* command = commands.empty() ? nullptr : commands.front();
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  // The two errors that a word which CLI11 does not know leads to.
  const bool of_words =
      code == CLI::ExitCodes::RequiredError || code == CLI::ExitCodes::ExtrasError;
  const std::string commands_there_are =
      absl::StrCat("; there are: ", absl::StrJoin(CommandNames(app), ", "));
  if (of_words && extras.empty() && command == nullptr && app.get_require_subcommand_min() > 0) {
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

}  // namespace

std::string UsageErrorText(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const std::string command = commands.empty() ? "" : " " + commands.front()->get_name();
  return absl::StrCat(WhatIsWrong(app, error), "; see ", app.get_name(), command, " --help");
}

}  // namespace attend::cli

// Resolves settings: CLI11 parses the command line and the file; which source wins, what is refused
// and where each value came from is decided here, since CLI11 lets a file beat the environment and
// unknown keys pass.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/suggest.h"
#include "server/settings/given.h"
#include "server/settings/settings.h"
#include "server/settings/settings_file.h"
#include "server/settings/settings_table.h"

namespace attend {
namespace {

constexpr char kPrefix[] = "ATTEND_";

std::string VariableName(absl::string_view setting) {
  return absl::StrCat(kPrefix, absl::StrReplaceAll(absl::AsciiStrToUpper(setting), {{"-", "_"}}));
}

std::vector<std::string> SplitList(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  for (const std::string& value : values) {
    for (absl::string_view part : absl::StrSplit(value, ',', absl::SkipWhitespace())) {
      parts.emplace_back(absl::StripAsciiWhitespace(part));
    }
  }
  return parts;
}

// --- The command line -----------------------------------------------------------------------

struct CommandLine {
  GivenByName given;
  bool print_config = false;
  std::string print;  // of --help or --version
};

constexpr char kFooter[] =
    "Each setting is also an environment variable (ATTEND_MAX_QUEUE_DELAY=2ms) and a line of the\n"
    "file that --config or ATTEND_CONFIG names (max-queue-delay = 2ms). A flag beats the\n"
    "environment, which beats the file, which beats the default. SIZE takes KiB, MiB, GiB;\n"
    "DURATION takes us, ms, s, m, h.";

void AddRow(CLI::App& app, const SettingRow& row, const Settings& defaults) {
  CLI::Option* option = row.kind == SettingKind::kSwitch ? app.add_flag("--" + row.name)
                                                         : app.add_option("--" + row.name);
  option->description(row.help)->group(row.group)->default_str(row.get(defaults));
  if (row.kind == SettingKind::kSwitch) return;
  // One that is given twice is refused in GivenFlags, in our words.
  option->type_name(row.type)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->allow_extra_args(false);
}

// CLI11 reads "--name=" as a flag whose value is the next argument; it is an empty value.
// Reversed, as CLI11 wants them.
std::vector<std::string> PrepareArgs(const std::vector<std::string>& args) {
  std::vector<std::string> prepared;
  for (const std::string& arg : args) {
    if (absl::StartsWith(arg, "--") && arg.find('=') == arg.size() - 1) {
      prepared.push_back(arg.substr(0, arg.size() - 1));
      prepared.emplace_back();
    } else {
      prepared.push_back(arg);
    }
  }
  std::reverse(prepared.begin(), prepared.end());
  return prepared;
}

absl::Status RefuseExtra(const std::string& extra) {
  absl::string_view name = extra;
  if (!absl::ConsumePrefix(&name, "--")) {
    return Refuse(absl::StrCat("\"", extra, "\""),
                  "is not a flag; flags begin with --, see --help");
  }
  name = name.substr(0, name.find('='));
  std::vector<std::string> flags = SettingNames();
  flags.insert(flags.end(), {"print-config", "help", "version"});
  return Refuse(absl::StrCat("--", name),
                absl::StrCat("no such flag", DidYouMean(name, flags, "--"), "; see --help"));
}

absl::StatusOr<GivenByName> GivenFlags(const CLI::App& app) {
  GivenByName given;
  for (const std::string& name : SettingNames()) {
    const std::string flag = "--" + name;
    const CLI::Option* option = app.get_option(flag);
    if (option->count() == 0) continue;
    const SettingRow* row = FindRow(name);
    const bool list = row != nullptr && row->kind == SettingKind::kList;
    if (option->count() > 1 && !list) return Refuse(flag, "is given twice; remove one of them");
    given[name] = {option->results(), "flag", flag};
  }
  return given;
}

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& args) {
  CLI::App app("Computes attention on CPUs, served over gRPC.", "attend-server");
  app.footer(kFooter);
  app.allow_extras();
  app.set_help_flag("--help,-h", "Print this and exit");
  app.set_version_flag("--version", "attend-server " ATTEND_VERSION, "Print the version and exit");
  CommandLine line;
  app.add_flag("--print-config", line.print_config,
               "Print every setting with its value and origin, as a config file, and exit");
  app.add_option(absl::StrCat("--", kConfigSetting))
      ->description("File of settings, one \"name = value\" a line, # for comments")
      ->type_name("PATH")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  const Settings defaults = DefaultSettings();
  for (const SettingRow& row : SettingRows()) AddRow(app, row, defaults);
  try {
    app.parse(PrepareArgs(args));
  } catch (const CLI::CallForVersion& version) {
    line.print = absl::StrCat(version.what(), "\n");
    return line;
  } catch (const CLI::CallForHelp&) {
    line.print = app.help();
    return line;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), "; see --help"));
  }
  const std::vector<std::string> extras = app.remaining();
  if (!extras.empty()) return RefuseExtra(extras.front());
  absl::StatusOr<GivenByName> given = GivenFlags(app);
  if (!given.ok()) return given.status();
  line.given = *std::move(given);
  return line;
}

// --- The environment ------------------------------------------------------------------------

// Names that begin with ATTEND_ and are none of our business: that of the `attend` command, those
// of tests, and those that Kubernetes sets in every pod beside a Service named attend or
// attend-something.
bool IsForeignVariable(absl::string_view name) {
  if (name == "ATTEND_SERVER" || absl::StartsWith(name, "ATTEND_TEST_")) return true;
  if (absl::EndsWith(name, "_SERVICE_HOST") || absl::EndsWith(name, "_PORT")) return true;
  for (const char* part : {"_SERVICE_PORT_", "_TCP", "_UDP", "_SCTP"}) {
    if (absl::StrContains(name, part) && absl::StrContains(name, "_PORT_")) return true;
  }
  return false;
}

absl::StatusOr<GivenByName> ReadEnvironment(const std::map<std::string, std::string>& environment) {
  std::map<std::string, std::string> settings_by_variable;
  for (const std::string& name : SettingNames()) settings_by_variable[VariableName(name)] = name;
  GivenByName given;
  for (const auto& [variable, value] : environment) {
    if (!absl::StartsWith(variable, kPrefix) || IsForeignVariable(variable)) continue;
    const auto setting = settings_by_variable.find(variable);
    if (setting == settings_by_variable.end()) {
      std::vector<std::string> variables;
      variables.reserve(settings_by_variable.size());
      for (const auto& entry : settings_by_variable) variables.push_back(entry.first);
      return Refuse(variable, absl::StrCat("no such setting", DidYouMean(variable, variables),
                                           "; unset it, or see --help"));
    }
    given[setting->second] = {{value}, "environment", variable};
  }
  return given;
}

// --- The file -------------------------------------------------------------------------------

// The file that the flag or the environment names. Removes it from both.
absl::StatusOr<GivenByName> ReadFile(GivenByName& flags, GivenByName& environment,
                                     std::vector<SettingReport>& report) {
  std::optional<Given> config;
  for (GivenByName* source : {&flags, &environment}) {
    auto node = source->extract(kConfigSetting);
    if (!node.empty() && !config.has_value()) config = std::move(node.mapped());
  }
  if (!config.has_value()) return GivenByName();
  const std::string& path = config->values.front();
  if (path.empty()) return Refuse(config->where, "is empty; name a file, or leave it out");
  report.push_back({kConfigSetting, path, config->origin});
  return ReadSettingsFile(path);
}

// --- Together -------------------------------------------------------------------------------

absl::Status Apply(const SettingRow& row, const Given& given, Settings& settings) {
  const absl::Status status =
      row.set(row.kind == SettingKind::kList ? SplitList(given.values) : given.values, settings);
  return status.ok() ? status : Refuse(given.where, status.message());
}

// Every source is checked, also where a stronger one hides its value: a mistake in a file must not
// wait for the day on which the flag goes away.
absl::Status Resolve(const std::vector<const GivenByName*>& weakest_first, LoadedSettings& loaded) {
  for (const SettingRow& row : SettingRows()) {
    std::string origin = "default";
    for (const GivenByName* source : weakest_first) {
      const auto given = source->find(row.name);
      if (given == source->end()) continue;
      if (absl::Status status = Apply(row, given->second, loaded.settings); !status.ok()) {
        return status;
      }
      origin = given->second.origin;
    }
    loaded.report.push_back({row.name, row.get(loaded.settings), origin});
  }
  return CheckTogether(loaded.settings);
}

std::string FileValue(const std::string& value) {
  std::int64_t number = 0;
  const bool plain = absl::SimpleAtoi(value, &number) || value == "true" || value == "false";
  return plain ? value : absl::StrCat("\"", value, "\"");
}

// Readable as a file of settings: CLI11 takes a # after a value for a comment.
std::string PrintConfig(const std::vector<SettingReport>& report) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const SettingReport& setting : report) {
    name_width = std::max(name_width, setting.name.size());
    value_width = std::max(value_width, FileValue(setting.value).size());
  }
  std::ostringstream out;
  out << std::left;
  for (const SettingReport& setting : report) {
    const bool comment = setting.name == kConfigSetting;
    out << std::setw(static_cast<int>(name_width)) << (comment ? "# config" : setting.name) << " = "
        << std::setw(static_cast<int>(value_width)) << FileValue(setting.value) << "  # "
        << setting.origin << "\n";
  }
  return out.str();
}

}  // namespace

absl::StatusOr<LoadedSettings> LoadSettings(const std::vector<std::string>& args,
                                            const std::map<std::string, std::string>& environment) {
  absl::StatusOr<CommandLine> line = ParseCommandLine(args);
  if (!line.ok()) return line.status();
  LoadedSettings loaded;
  loaded.settings = DefaultSettings();
  loaded.print = line->print;
  if (!loaded.print.empty()) return loaded;
  absl::StatusOr<GivenByName> variables = ReadEnvironment(environment);
  if (!variables.ok()) return variables.status();
  const absl::StatusOr<GivenByName> file = ReadFile(line->given, *variables, loaded.report);
  if (!file.ok()) return file.status();
  absl::Status status = Resolve({&*file, &*variables, &line->given}, loaded);
  if (!status.ok()) return status;
  if (line->print_config) loaded.print = PrintConfig(loaded.report);
  return loaded;
}

}  // namespace attend

#include "server/settings/settings_file.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/suggest.h"
#include "server/settings/setting_lines.h"

namespace attend {
namespace {

// A pipe would be waited for, and a device may never end.
absl::Status CheckRegularFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return Refuse(
        path, absl::StrCat("cannot be read", error ? absl::StrCat(" (", error.message(), ")") : "",
                           "; name a readable file with --config or ATTEND_CONFIG"));
  }
  if (std::filesystem::is_regular_file(status)) return absl::OkStatus();
  return Refuse(path,
                "is not a regular file but a folder, a pipe, a socket or a device; write the "
                "settings to a file, and name that with --config or ATTEND_CONFIG");
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  if (absl::Status status = CheckRegularFile(path); !status.ok()) return status;
  std::ifstream file(path);
  std::ostringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || text.bad()) {
    return Refuse(path, "cannot be read; name a readable file with --config or ATTEND_CONFIG");
  }
  return text.str();
}

// CLI11's own items for where a section begins and ends.
bool IsSectionMark(const CLI::ConfigItem& item) { return item.name == "++" || item.name == "--"; }

// "FILE:3: threads", or "FILE:3" for a section.
std::string WhereOf(const CLI::ConfigItem& item, const SettingLines& lines, const std::string& path,
                    bool again) {
  if (IsSectionMark(item)) return absl::StrCat(path, ":", lines.first_section());
  const std::string key = item.fullname();
  const int line = again ? lines.LastOf(key) : lines.FirstOf(key);
  return absl::StrCat(path, ":", line == 0 ? "" : absl::StrCat(line, ":"), " ", item.name);
}

// CLI11 would take a list that does not close for one that does, less its last character.
absl::Status CheckBrackets(const SettingLines& lines, const std::string& path) {
  if (lines.unclosed() != 0) {
    return Refuse(absl::StrCat(path, ":", lines.unclosed()),
                  "has a [ without a ]; close every list");
  }
  if (lines.unopened() != 0) {
    return Refuse(absl::StrCat(path, ":", lines.unopened()), "has a ] without a [; remove it");
  }
  return absl::OkStatus();
}

absl::Status CheckFileItem(const CLI::ConfigItem& item, const std::string& where) {
  if (IsSectionMark(item) || !item.parents.empty()) {
    return Refuse(where, "has a section or a dotted key; write plain \"name = value\" lines");
  }
  if (item.name == kConfigSetting)
    return Refuse(where, "a file cannot name another file; remove it");
  const SettingRow* row = FindRow(item.name);
  if (row == nullptr) {
    return Refuse(where, absl::StrCat("no such setting", DidYouMean(item.name, SettingNames()),
                                      "; see --help"));
  }
  if (row->kind != SettingKind::kList && item.inputs.size() != 1) {
    return Refuse(where, absl::StrCat("has ", item.inputs.size(),
                                      " values; write it once, in quotes where it has spaces"));
  }
  for (const std::string& input : item.inputs) {
    // CLI11 2.1 ends a value at a # even between quotes, later ones do not: no version takes one.
    if (input.find_first_of("\"'#") == std::string::npos) continue;
    return Refuse(where, "has a quote that does not close; a value cannot hold quotes or #");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GivenByName> ReadSettingsFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  const SettingLines lines(*text);
  if (absl::Status status = CheckBrackets(lines, path); !status.ok()) return status;
  std::istringstream stream(*text);
  GivenByName given;
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const std::exception& error) {
    return Refuse(path, absl::StrCat("is not a file of settings: ", error.what()));
  }
  for (const CLI::ConfigItem& item : items) {
    const std::string where = WhereOf(item, lines, path, given.count(item.name) != 0);
    if (absl::Status status = CheckFileItem(item, where); !status.ok()) return status;
    if (given.count(item.name) != 0) return Refuse(where, "is given twice; remove one of them");
    given[item.name] = {item.inputs, "file", where};
  }
  return given;
}

}  // namespace attend

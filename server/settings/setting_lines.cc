#include "server/settings/setting_lines.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace attend {

SettingLines::SettingLines(absl::string_view text) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    const bool in_list = !open_.empty();
    if (!in_list) {
      // Outside of lists CLI11 takes comments away, and so whatever brackets are in them.
      line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
      if (line.empty() || line.front() == ';') continue;
      ReadKey(line, number);
    }
    ReadBrackets(line, number);
  }
}

int SettingLines::FirstOf(absl::string_view key) const {
  const auto found = lines_of_key_.find(key);
  return found == lines_of_key_.end() ? 0 : found->second.front();
}

int SettingLines::LastOf(absl::string_view key) const {
  const auto found = lines_of_key_.find(key);
  return found == lines_of_key_.end() ? 0 : found->second.back();
}

void SettingLines::ReadKey(absl::string_view line, int number) {
  if (absl::StartsWith(line, "[") && absl::EndsWith(line, "]")) {
    if (first_section_ == 0) first_section_ = number;
    return;
  }
  // A line without a value is a key as well.
  absl::string_view key = absl::StripAsciiWhitespace(line.substr(0, line.find('=')));
  if (key.size() >= 2 && key.front() == key.back() && (key.front() == '"' || key.front() == '\'')) {
    key = key.substr(1, key.size() - 2);
  }
  lines_of_key_[std::string(key)].push_back(number);
}

void SettingLines::ReadBrackets(absl::string_view line, int number) {
  for (const char c : line) {
    if (c == '[') open_.push_back(number);
    if (c != ']') continue;
    if (!open_.empty()) {
      open_.pop_back();
    } else if (unopened_ == 0) {
      unopened_ = number;
    }
  }
}

}  // namespace attend

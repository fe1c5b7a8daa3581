// On which lines a file of settings says what: CLI11, which reads it, does not tell.
#ifndef ATTEND_SERVER_SETTINGS_SETTING_LINES_H_
#define ATTEND_SERVER_SETTINGS_SETTING_LINES_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attend {

// Lines count from 1; 0 is none.
class SettingLines {
 public:
  explicit SettingLines(absl::string_view text);

  // Of the lines that give a key (with its dots, where it has any).
  int FirstOf(absl::string_view key) const;
  int LastOf(absl::string_view key) const;
  // The first line such as "[server]".
  int first_section() const { return first_section_; }
  // Lines of the first [ that is never closed, and of the first ] that closes nothing.
  int unclosed() const { return open_.empty() ? 0 : open_.front(); }
  int unopened() const { return unopened_; }

 private:
  void ReadKey(absl::string_view line, int number);
  void ReadBrackets(absl::string_view line, int number);

  std::map<std::string, std::vector<int>, std::less<>> lines_of_key_;
  std::vector<int> open_;  // for each [ that waits for its ]
  int unopened_ = 0;
  int first_section_ = 0;
};

}  // namespace attend

#endif  // ATTEND_SERVER_SETTINGS_SETTING_LINES_H_

// The one list of settings: flag, variable, key, default, help and check all come from its rows.
#ifndef ATTEND_SERVER_SETTINGS_SETTINGS_TABLE_H_
#define ATTEND_SERVER_SETTINGS_SETTINGS_TABLE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/settings/settings.h"

namespace attend {

enum class SettingKind : std::uint8_t {
  kValue,   // --name VALUE
  kSwitch,  // --name or --name=false
  kList,    // --name VALUE, repeated, or with commas between the values
};

struct SettingRow {
  std::string name;  // of the flag and the key; the variable's name follows from it
  SettingKind kind = SettingKind::kValue;
  std::string type;   // shown by --help, such as "SIZE"
  std::string group;  // heading in --help
  std::string help;
  // Parses, checks and stores. One value, unless the row is a list. Errors: INVALID_ARGUMENT with
  // a sentence that does not name the setting.
  std::function<absl::Status(const std::vector<std::string>&, Settings&)> set;
  // The value as the command line would have it.
  std::function<std::string(const Settings&)> get;
};

// In the order of --help.
const std::vector<SettingRow>& SettingRows();

// Defaults of this machine.
Settings DefaultSettings();

// INVALID_ARGUMENT, naming the settings, where two of them contradict each other, or the ready file
// cannot be written where it is meant to be.
absl::Status CheckTogether(const Settings& settings);

}  // namespace attend

#endif  // ATTEND_SERVER_SETTINGS_SETTINGS_TABLE_H_

// What the sources of settings (flags, environment, file) say, before it is resolved.
#ifndef ATTEND_SERVER_SETTINGS_GIVEN_H_
#define ATTEND_SERVER_SETTINGS_GIVEN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/settings/settings_table.h"

namespace attend {

// The setting that names the file. It is in no file, and no row of the table.
inline constexpr char kConfigSetting[] = "config";

// What one source says about one setting.
struct Given {
  std::vector<std::string> values;
  std::string origin;  // "flag", "environment" or "file"
  std::string where;   // for messages, such as "--threads", "ATTEND_THREADS" or "FILE:3: threads"
};
using GivenByName = std::map<std::string, Given>;

// INVALID_ARGUMENT "<where>: <why>".
absl::Status Refuse(absl::string_view where, absl::string_view why);

// Every name there is, kConfigSetting first.
std::vector<std::string> SettingNames();

// Null for a name that there is not.
const SettingRow* FindRow(absl::string_view name);

}  // namespace attend

#endif  // ATTEND_SERVER_SETTINGS_GIVEN_H_

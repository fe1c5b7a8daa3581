#include "server/settings/given.h"

#include "absl/strings/str_cat.h"

namespace attend {

absl::Status Refuse(absl::string_view where, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", why));
}

std::vector<std::string> SettingNames() {
  std::vector<std::string> names = {kConfigSetting};
  for (const SettingRow& row : SettingRows()) names.push_back(row.name);
  return names;
}

const SettingRow* FindRow(absl::string_view name) {
  for (const SettingRow& row : SettingRows()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace attend

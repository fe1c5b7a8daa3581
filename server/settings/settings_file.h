// The file that --config or ATTEND_CONFIG names.
#ifndef ATTEND_SERVER_SETTINGS_SETTINGS_FILE_H_
#define ATTEND_SERVER_SETTINGS_SETTINGS_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/settings/given.h"

namespace attend {

// What a file says: "name = value" lines, # for comments, lists in brackets.
// Errors: INVALID_ARGUMENT that names the file, the line where there is one, and what to change:
// for what is not a regular file (a pipe would be waited for), cannot be read, has sections,
// unknown keys, keys given twice, brackets that do not match, or values that CLI11 would misread.
absl::StatusOr<GivenByName> ReadSettingsFile(const std::string& path);

}  // namespace attend

#endif  // ATTEND_SERVER_SETTINGS_SETTINGS_FILE_H_

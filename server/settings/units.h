// Reading and writing the values of settings.
#ifndef ATTEND_SERVER_SETTINGS_UNITS_H_
#define ATTEND_SERVER_SETTINGS_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attend {

// Errors of all parsers: INVALID_ARGUMENT that quotes the text and says how it should look.

// "true" or "false".
absl::StatusOr<bool> ParseSwitch(absl::string_view text);

// A whole decimal number, without a unit.
absl::StatusOr<std::int64_t> ParseInteger(absl::string_view text);

// Bytes: a whole number with an optional unit of B, KiB, MiB or GiB, such as "256MiB".
absl::StatusOr<std::int64_t> ParseSize(absl::string_view text);

// In the largest unit that divides it, such as "256MiB".
std::string FormatSize(std::int64_t bytes);

// "0", or numbers with units, such as "500us", "2ms", "1.5s" or "1m30s". Never negative or
// infinite.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

}  // namespace attend

#endif  // ATTEND_SERVER_SETTINGS_UNITS_H_

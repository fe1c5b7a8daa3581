#include "server/settings/units.h"

#include <array>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace attend {
namespace {

absl::Status NotA(absl::string_view text, absl::string_view what, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not ", what, "; write ", expected));
}

// Largest first, so that formatting finds the largest that divides.
constexpr std::array<std::pair<const char*, std::int64_t>, 4> kSizeUnits = {{
    {"GiB", std::int64_t{1} << 30},
    {"MiB", std::int64_t{1} << 20},
    {"KiB", std::int64_t{1} << 10},
    {"B", 1},
}};

}  // namespace

absl::StatusOr<bool> ParseSwitch(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return NotA(text, "a switch", "true or false");
}

absl::StatusOr<std::int64_t> ParseInteger(absl::string_view text) {
  std::int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return NotA(text, "a whole number", "digits only");
  return value;
}

absl::StatusOr<std::int64_t> ParseSize(absl::string_view text) {
  const absl::Status error =
      NotA(text, "a size", "a whole number of bytes, or one with KiB, MiB or GiB");
  absl::string_view number = text;
  std::int64_t unit_bytes = 1;
  for (const auto& [suffix, bytes] : kSizeUnits) {
    if (absl::ConsumeSuffix(&number, suffix)) {
      unit_bytes = bytes;
      break;
    }
  }
  std::int64_t count = 0;
  if (!absl::SimpleAtoi(number, &count) || count < 0) return error;
  if (count > std::numeric_limits<std::int64_t>::max() / unit_bytes) return error;
  return count * unit_bytes;
}

std::string FormatSize(std::int64_t bytes) {
  if (bytes == 0) return "0";
  for (const auto& [suffix, unit_bytes] : kSizeUnits) {
    if (unit_bytes > 1 && bytes % unit_bytes == 0) return absl::StrCat(bytes / unit_bytes, suffix);
  }
  return absl::StrCat(bytes);
}

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return NotA(text, "a duration", "a number with a unit, such as 500us, 2ms or 1s");
  }
  return duration;
}

}  // namespace attend

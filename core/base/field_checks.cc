#include "core/base/field_checks.h"

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend {

std::string Indexed(absl::string_view field, absl::string_view list, std::int64_t index) {
  return absl::StrCat(field, list, "[", index, "]");
}

std::string DimField(absl::string_view field, int axis) { return Indexed(field, ".shape", axis); }

absl::Status CheckRange(absl::string_view field, std::int64_t value, std::int64_t low,
                        std::int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidField(field,
                      absl::StrCat("is ", value, "; expected a value from ", low, " to ", high));
}

absl::Status CheckEqual(absl::string_view field, std::int64_t value, std::int64_t expected,
                        absl::string_view what) {
  if (value == expected) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; expected ", expected, " (", what, ")"));
}

}  // namespace attend

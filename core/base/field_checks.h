// Checks of single numbers of a request, and the paths of the fields that hold them.
//
// For the .cc files of this folder: what they say in common, they say in the same words.
#ifndef ATTEND_CORE_BASE_FIELD_CHECKS_H_
#define ATTEND_CORE_BASE_FIELD_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attend {

// "<field><list>[<index>]".
std::string Indexed(absl::string_view field, absl::string_view list, std::int64_t index);

// "<field>.shape[<axis>]".
std::string DimField(absl::string_view field, int axis);

// INVALID_ARGUMENT naming `field` unless low <= value <= high.
absl::Status CheckRange(absl::string_view field, std::int64_t value, std::int64_t low,
                        std::int64_t high);

// INVALID_ARGUMENT naming `field` unless value == expected; `what` tells where `expected` is from.
absl::Status CheckEqual(absl::string_view field, std::int64_t value, std::int64_t expected,
                        absl::string_view what);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_FIELD_CHECKS_H_

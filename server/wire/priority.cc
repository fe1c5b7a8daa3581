#include "server/wire/priority.h"

#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend {

namespace {

constexpr std::size_t kMaxQuotedBytes = 32;

absl::StatusOr<Priority> FromMetadata(absl::string_view value) {
  if (value == "high") return Priority::kHigh;
  if (value == "normal") return Priority::kNormal;
  if (value == "low") return Priority::kLow;
  return InvalidField(kPriorityMetadata,
                      absl::StrCat("is \"", absl::CHexEscape(value.substr(0, kMaxQuotedBytes)),
                                   "\"; expected high, normal or low"));
}

}  // namespace

absl::StatusOr<Priority> ToPriority(v1::Priority requested,
                                    std::optional<absl::string_view> metadata) {
  switch (requested) {
    case v1::PRIORITY_UNSPECIFIED:
      return metadata.has_value() ? FromMetadata(*metadata) : Priority::kNormal;
    case v1::PRIORITY_NORMAL:
      return Priority::kNormal;
    case v1::PRIORITY_HIGH:
      return Priority::kHigh;
    case v1::PRIORITY_LOW:
      return Priority::kLow;
    default:
      return InvalidField("priority", absl::StrCat("is ", static_cast<int>(requested),
                                                   "; expected a value of Priority"));
  }
}

}  // namespace attend

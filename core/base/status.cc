#include "core/base/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace attend {

namespace {

constexpr absl::string_view kFieldUrl = "attend/field";

absl::Status WithField(absl::StatusCode code, absl::string_view field,
                       absl::string_view description) {
  absl::Status status(code, absl::StrCat(field, ": ", description));
  status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
}

}  // namespace

absl::Status InvalidField(absl::string_view field, absl::string_view description) {
  return WithField(absl::StatusCode::kInvalidArgument, field, description);
}

absl::Status UnimplementedField(absl::string_view field, absl::string_view description) {
  return WithField(absl::StatusCode::kUnimplemented, field, description);
}

std::optional<FieldViolation> GetFieldViolation(const absl::Status& status) {
  const auto payload = status.GetPayload(kFieldUrl);
  if (!payload.has_value()) return std::nullopt;
  FieldViolation violation{.field = std::string(*payload), .description = ""};
  violation.description = std::string(status.message().substr(violation.field.size() + 2));
  return violation;
}

}  // namespace attend

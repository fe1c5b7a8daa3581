// Errors that name the field which caused them.
//
// Every INVALID_ARGUMENT or UNIMPLEMENTED that a caller's input causes is made here, so that the
// field's path travels with the status as a payload and the server can put it into a BadRequest.
#ifndef ATTEND_CORE_BASE_STATUS_H_
#define ATTEND_CORE_BASE_STATUS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attend {

// INVALID_ARGUMENT "<field>: <description>". `field` is a path from the request's root, such as
// "key.shape[2]"; `description` gives the value and what was expected.
absl::Status InvalidField(absl::string_view field, absl::string_view description);

// UNIMPLEMENTED "<field>: <description>", for a legal request that is not offered.
absl::Status UnimplementedField(absl::string_view field, absl::string_view description);

// The field and the description that a status was made with; nothing for other statuses.
struct FieldViolation {
  std::string field;
  std::string description;
};
std::optional<FieldViolation> GetFieldViolation(const absl::Status& status);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_STATUS_H_

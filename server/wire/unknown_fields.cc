#include "server/wire/unknown_fields.h"

#include <google/protobuf/unknown_field_set.h>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend {

absl::Status RefuseUnknownFields(const google::protobuf::Message& message,
                                 absl::string_view field) {
  const google::protobuf::UnknownFieldSet& unknown =
      message.GetReflection()->GetUnknownFields(message);
  if (unknown.empty()) return absl::OkStatus();
  return UnimplementedField(field, absl::StrCat("holds field number ", unknown.field(0).number(),
                                                ", which this server does not know"));
}

}  // namespace attend

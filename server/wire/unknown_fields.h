// Fields that this server's API does not have yet.
#ifndef ATTEND_SERVER_WIRE_UNKNOWN_FIELDS_H_
#define ATTEND_SERVER_WIRE_UNKNOWN_FIELDS_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attend {

// UNIMPLEMENTED, naming `field`, if the message itself (not a message inside it) holds a field that
// this server does not know: an option of a newer client, which must be refused, since ignoring it
// would answer another question.
absl::Status RefuseUnknownFields(const google::protobuf::Message& message, absl::string_view field);

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_UNKNOWN_FIELDS_H_

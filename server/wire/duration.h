// google.protobuf.Duration to and from absl::Duration.
#ifndef ATTEND_SERVER_WIRE_DURATION_H_
#define ATTEND_SERVER_WIRE_DURATION_H_

#include <google/protobuf/duration.pb.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attend {

// Rounds towards 0, to nanoseconds. `duration` must be finite.
google::protobuf::Duration ToProtoDuration(absl::Duration duration);

// INVALID_ARGUMENT, naming `field`, unless the duration is valid as duration.proto defines it
// (at most 10,000 years, nanos below a second and of the same sign) and positive.
absl::StatusOr<absl::Duration> FromPositiveProtoDuration(const google::protobuf::Duration& duration,
                                                         absl::string_view field);

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_DURATION_H_

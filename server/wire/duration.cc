#include "server/wire/duration.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend {

namespace {

constexpr std::int64_t kMaxSeconds = 315'576'000'000;  // 10,000 years, as duration.proto says
constexpr std::int32_t kMaxNanos = 999'999'999;

}  // namespace

google::protobuf::Duration ToProtoDuration(absl::Duration duration) {
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  proto.set_nanos(
      static_cast<std::int32_t>(absl::IDivDuration(duration, absl::Nanoseconds(1), &duration)));
  return proto;
}

absl::StatusOr<absl::Duration> FromPositiveProtoDuration(const google::protobuf::Duration& duration,
                                                         absl::string_view field) {
  const std::int64_t seconds = duration.seconds();
  const std::int32_t nanos = duration.nanos();
  // With both parts in range and not negative, the signs agree.
  const bool valid = seconds >= 0 && seconds <= kMaxSeconds && nanos >= 0 && nanos <= kMaxNanos;
  if (!valid || (seconds == 0 && nanos == 0)) {
    return InvalidField(field, absl::StrCat("is ", seconds, " seconds and ", nanos,
                                            " nanos; expected a positive duration of at most ",
                                            kMaxSeconds, " seconds and ", kMaxNanos, " nanos"));
  }
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

}  // namespace attend

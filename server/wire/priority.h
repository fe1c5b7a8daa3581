// Who goes first: the request's field, or else the call's metadata.
#ifndef ATTEND_SERVER_WIRE_PRIORITY_H_
#define ATTEND_SERVER_WIRE_PRIORITY_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attend/v1/attention.pb.h"
#include "server/schedule/scheduler.h"

namespace attend {

inline constexpr char kPriorityMetadata[] = "x-attend-priority";

// `requested` wins; where it is unspecified, `metadata` (the value of x-attend-priority: "high",
// "normal" or "low"; unset if the call has none) says; where both are silent, NORMAL.
// INVALID_ARGUMENT naming "priority" or "x-attend-priority" for any other value.
absl::StatusOr<Priority> ToPriority(v1::Priority requested,
                                    std::optional<absl::string_view> metadata);

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_PRIORITY_H_

// What an error of attend::Client says beyond its code and message.
#ifndef ATTEND_CLIENT_CPP_ERRORS_H_
#define ATTEND_CLIENT_CPP_ERRORS_H_

#include <chrono>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status.h"

namespace attend {

// The fields of the request that were wrong, by their paths, such as "key.shape[2]", in the
// server's order. Empty where the error is about no field.
std::vector<FieldViolation> GetFieldViolations(const absl::Status& status);

// How long the server asked to wait before another attempt; nothing where it did not say.
std::optional<std::chrono::milliseconds> GetRetryDelay(const absl::Status& status);

}  // namespace attend

#endif  // ATTEND_CLIENT_CPP_ERRORS_H_

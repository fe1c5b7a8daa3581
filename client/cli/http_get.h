// One HTTP GET, for a server's metrics.
#ifndef ATTEND_CLIENT_CLI_HTTP_GET_H_
#define ATTEND_CLIENT_CLI_HTTP_GET_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace attend::cli {

// The body that "http://HOST:PORT/PATH", "HOST:PORT/PATH" or "HOST:PORT" (then /metrics) answers.
// INVALID_ARGUMENT for another form of URL; UNAVAILABLE where nobody answers or not with status
// 200. `timeout` bounds the wait for the answer, not the connecting.
absl::StatusOr<std::string> HttpGet(const std::string& url, std::chrono::milliseconds timeout);

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_HTTP_GET_H_

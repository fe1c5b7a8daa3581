// The server's log: lines on stderr, as text or as JSON.
#ifndef ATTEND_SERVER_OBSERVE_LOGGING_H_
#define ATTEND_SERVER_OBSERVE_LOGGING_H_

#include <memory>
#include <spdlog/logger.h>

#include "server/settings/settings.h"

namespace attend {

using Logger = std::shared_ptr<spdlog::logger>;

// Lines are UTC time, level and message; as JSON an object a line, with the members "time",
// "level" and "message", in which bytes that are not UTF-8 are replaced.
// Thread-safety: the logger may be used from any thread.
Logger MakeLogger(LogLevel level, LogFormat format, spdlog::sink_ptr sink);

// The same, to stderr.
Logger MakeStderrLogger(LogLevel level, LogFormat format);

// Sends what the gRPC library itself logs to `logger`, from now to the end of the process.
void RouteGrpcLogs(Logger logger);

}  // namespace attend

#endif  // ATTEND_SERVER_OBSERVE_LOGGING_H_

// The server's log: lines on stderr, as text or as JSON.
#ifndef ATTEND_SERVER_OBSERVE_LOGGING_H_
#define ATTEND_SERVER_OBSERVE_LOGGING_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <spdlog/logger.h>

namespace attend {

using Logger = std::shared_ptr<spdlog::logger>;

enum class LogLines : std::uint8_t { kText, kJson };

// Lines are UTC time, level and message; as JSON an object a line, with the members "time",
// "level" and "message", in which bytes that are not UTF-8 are replaced.
// Thread-safety: the logger may be used from any thread.
Logger MakeStderrLogger(spdlog::level::level_enum level, LogLines lines);

// The same, to `out`, which must outlive the logger.
Logger MakeStreamLogger(spdlog::level::level_enum level, LogLines lines, std::ostream& out);

// Sends what the gRPC and protobuf libraries themselves log to `logger`, from now to the end of the
// process. Callers can trigger some of it, such as a line for each string that is not UTF-8: of
// each library 20 lines in 10 s, and then their number. To be called before either is used.
void RouteLibraryLogs(Logger logger);

}  // namespace attend

#endif  // ATTEND_SERVER_OBSERVE_LOGGING_H_

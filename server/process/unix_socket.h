// The file of a Unix socket, before and after a server listens on it.
#ifndef ATTEND_SERVER_PROCESS_UNIX_SOCKET_H_
#define ATTEND_SERVER_PROCESS_UNIX_SOCKET_H_

#include <string>

#include "absl/status/status.h"

namespace attend {

// Makes `path` free to listen on: removes a socket that a dead server left there.
//
// gRPC by itself removes any socket, also one that a living server listens on, which then is cut
// off without a word.
// Errors: FAILED_PRECONDITION that says what to do where a living server listens on it, or where it
// is something else than a socket; UNAVAILABLE where it cannot be looked at or removed.
absl::Status FreeUnixSocketPath(const std::string& path);

}  // namespace attend

#endif  // ATTEND_SERVER_PROCESS_UNIX_SOCKET_H_

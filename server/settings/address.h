// Addresses to listen on.
#ifndef ATTEND_SERVER_SETTINGS_ADDRESS_H_
#define ATTEND_SERVER_SETTINGS_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attend {

// "host:port", "[v6]:port" or "unix:/path".
struct Address {
  std::string host;  // without brackets; empty for a Unix socket
  int port = 0;      // 0 = any free one
  std::string path;  // absolute; empty for TCP

  bool is_unix() const { return !path.empty(); }
  // Reachable from this host alone: a Unix socket, 127.0.0.0/8, ::1 or "localhost".
  bool is_local() const;
};

// INVALID_ARGUMENT that quotes the text and says what an address looks like.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// As ParseAddress would read it.
std::string FormatAddress(const Address& address);

}  // namespace attend

#endif  // ATTEND_SERVER_SETTINGS_ADDRESS_H_

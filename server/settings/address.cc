#include "server/settings/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <optional>
#include <sys/un.h>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace attend {
namespace {

absl::Status BadAddress(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" ", why,
                                                 "; write host:port, such as 127.0.0.1:50051 or "
                                                 "[::1]:50051, or unix:/path"));
}

absl::StatusOr<Address> ParseUnixAddress(absl::string_view text, absl::string_view path) {
  // The kernel keeps the terminating zero too.
  constexpr std::size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty() || path.front() != '/') return BadAddress(text, "has no absolute path");
  if (path.size() > kMaxPath) {
    return BadAddress(text, absl::StrCat("has a path longer than ", kMaxPath, " bytes"));
  }
  Address address;
  address.path = std::string(path);
  return address;
}

bool IsLoopbackV4(const std::string& host) {
  in_addr v4{};
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

bool IsLoopbackV6(const std::string& host) {
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

bool Address::is_local() const {
  return is_unix() || host == "localhost" || IsLoopbackV4(host) || IsLoopbackV6(host);
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) return ParseUnixAddress(text, rest);

  const auto colon = rest.rfind(':');
  if (colon == absl::string_view::npos) return BadAddress(text, "has no port");
  absl::string_view host = rest.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty()) return BadAddress(text, "has no host");
  if (!bracketed && host.find_first_of("[]:") != absl::string_view::npos) {
    return BadAddress(text, "has a host that is not one");
  }
  Address address;
  address.host = std::string(host);
  in6_addr v6{};
  if (bracketed && inet_pton(AF_INET6, address.host.c_str(), &v6) != 1) {
    return BadAddress(text, "has no IPv6 address between its brackets");
  }
  if (!absl::SimpleAtoi(rest.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535) {
    return BadAddress(text, "has no port between 0 and 65535");
  }
  return address;
}

std::string FormatAddress(const Address& address) {
  if (address.is_unix()) return absl::StrCat("unix:", address.path);
  if (address.host.find(':') != std::string::npos) {
    return absl::StrCat("[", address.host, "]:", address.port);
  }
  return absl::StrCat(address.host, ":", address.port);
}

}  // namespace attend

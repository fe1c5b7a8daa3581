#include "client/cli/http_get.h"

#include <array>
#include <civetweb.h>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace attend::cli {

namespace {

constexpr int kHttpOk = 200;

struct Url {
  std::string host;
  int port = 0;
  std::string path;
};

absl::StatusOr<Url> ParseUrl(const std::string& url) {
  const std::string rest(absl::StripPrefix(url, "http://"));
  const auto slash = rest.find('/');
  const std::string address = rest.substr(0, slash);
  const auto colon = address.rfind(':');
  Url parsed;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &parsed.port)) {
    return absl::InvalidArgumentError(
        absl::StrCat(url, ": expected http://HOST:PORT/PATH, or HOST:PORT"));
  }
  parsed.host = address.substr(0, colon);
  parsed.path = slash == std::string::npos ? "/metrics" : rest.substr(slash);
  return parsed;
}

struct Closer {
  void operator()(mg_connection* connection) const { mg_close_connection(connection); }
};
using Connection = std::unique_ptr<mg_connection, Closer>;

// CivetWeb wants to be told when it is used.
class Library {
 public:
  Library() { mg_init_library(0); }
  ~Library() { mg_exit_library(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

std::string ReadBody(mg_connection* connection) {
  std::string body;
  std::array<char, 4096> buffer{};
  for (int count = 0; (count = mg_read(connection, buffer.data(), buffer.size())) > 0;) {
    body.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return body;
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& url, std::chrono::milliseconds timeout) {
  const absl::StatusOr<Url> parsed = ParseUrl(url);
  if (!parsed.ok()) return parsed.status();
  const Library library;
  std::array<char, 256> error{};
  const Connection connection(
      mg_connect_client(parsed->host.c_str(), parsed->port, 0, error.data(), error.size()));
  if (connection == nullptr) return absl::UnavailableError(absl::StrCat(url, ": ", error.data()));
  mg_printf(connection.get(), "GET %s HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n",
            parsed->path.c_str(), parsed->host.c_str(), parsed->port);
  if (mg_get_response(connection.get(), error.data(), error.size(),
                      static_cast<int>(timeout.count())) < 0) {
    return absl::UnavailableError(absl::StrCat(url, ": ", error.data()));
  }
  const int code = mg_get_response_info(connection.get())->status_code;
  if (code != kHttpOk) return absl::UnavailableError(absl::StrCat(url, ": HTTP status ", code));
  return ReadBody(connection.get());
}

}  // namespace attend::cli

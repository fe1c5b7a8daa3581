#include "server/process/unix_socket.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace attend {
namespace {

absl::Status Unavailable(const std::string& path, const char* what, int error) {
  return absl::UnavailableError(
      absl::StrCat("unix:", path, ": cannot ", what, ": ", std::generic_category().message(error)));
}

// 0 if a server listens on the socket, else why it cannot be connected to.
int TryConnect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  // Not blocking: a server with a full backlog answers EAGAIN, and it is alive.
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const int error =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::Status FreeUnixSocketPath(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Unavailable(path, "look at it", errno);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("unix:", path, ": is a file and no socket; remove it or choose another path"));
  }
  if (TryConnect(path) != ECONNREFUSED) {
    return absl::FailedPreconditionError(absl::StrCat(
        "unix:", path, ": another server listens on it; stop that one or choose another path"));
  }
  if (unlink(path.c_str()) != 0) return Unavailable(path, "remove it", errno);
  return absl::OkStatus();
}

}  // namespace attend

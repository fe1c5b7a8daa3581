#include "server/process/listen_failure.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace attend {
namespace {

constexpr int kBacklog = 1;

// What an attempt came to: errno, or a name that could not be resolved.
struct Attempt {
  int error = 0;
  std::string unresolved;
};

// 0, or errno.
int TryToListen(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  // As gRPC does: a port whose last connections are still closing may be taken.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool listens = bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0;
  const int error = listens ? 0 : errno;
  close(fd);
  return error;
}

Attempt TryUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int error =
      TryToListen(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (error == 0) unlink(path.c_str());  // bind has made it
  return {.error = error};
}

// Fails if all addresses do that the host's name stands for: with the one that is taken, since that
// it is not an address of this machine goes for "localhost" too, where there is no IPv6.
Attempt TryTcp(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (failure != 0) return {.unresolved = gai_strerror(failure)};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  int reason = 0;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    const int error = TryToListen(entry->ai_family, entry->ai_addr, entry->ai_addrlen);
    if (error == 0) return {};
    if (reason != EADDRINUSE) reason = error;
  }
  return {.error = reason};
}

std::string AdviceFor(int error, const Address& address) {
  switch (error) {
    case EADDRINUSE:
      return absl::StrCat("another process listens there (`ss ",
                          address.is_unix() ? "-lxp" : "-ltnp",
                          "` names it); stop it, or choose another address");
    case EADDRNOTAVAIL:
      return absl::StrCat("no network interface of this machine has the address ", address.host,
                          "; choose one that it has (`ip address` lists them)");
    case EACCES:
    case EPERM:
      if (address.is_unix()) return "choose a path in a folder that this user may write to";
      return absl::StrCat("this user may not take port ", address.port,
                          "; choose one from 1024 on, or give the process CAP_NET_BIND_SERVICE");
    case EAFNOSUPPORT:
      return "this machine has no such protocol; choose an address of another one";
    case ENOENT:
    case ENOTDIR:
      return "the folder of the path does not exist; create it, or choose another path";
    default:
      return "choose another address";
  }
}

}  // namespace

std::optional<std::string> FindListenFailure(const Address& address) {
  const Attempt attempt = address.is_unix() ? TryUnix(address.path) : TryTcp(address);
  const std::string what = absl::StrCat("cannot listen on ", FormatAddress(address), ": ");
  if (!attempt.unresolved.empty()) {
    return absl::StrCat(what, "\"", address.host, "\" is no address that this machine knows (",
                        attempt.unresolved, "); write a numeric address, or a name that resolves");
  }
  if (attempt.error == 0) return std::nullopt;
  return absl::StrCat(what, std::generic_category().message(attempt.error), "; ",
                      AdviceFor(attempt.error, address));
}

}  // namespace attend

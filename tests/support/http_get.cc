#include "tests/support/http_get.h"

#include <arpa/inet.h>
#include <array>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/support/wait.h"

namespace attend::testing {

namespace {

int Connect(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in socket_address{};
  socket_address.sin_family = AF_INET;
  socket_address.sin_port =
      htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + colon + 1)));
  if (inet_pton(AF_INET, address.substr(0, colon).c_str(), &socket_address.sin_addr) != 1) {
    return -1;
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (connect(fd, reinterpret_cast<sockaddr*>(&socket_address), sizeof(socket_address)) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

// What the server sends until it closes the connection.
std::string Exchange(int fd, const std::string& request) {
  std::string response;
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return response;
  }
  std::array<char, 1 << 16> buffer;
  ssize_t count = 0;
  while ((count = recv(fd, buffer.data(), buffer.size(), 0)) > 0) {
    response.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return response;
}

}  // namespace

HttpResponse HttpGet(const std::string& address, const std::string& path) {
  HttpResponse response;
  const int fd = Connect(address);
  if (fd < 0) return response;
  const std::string raw = Exchange(
      fd, "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n");
  close(fd);
  const std::size_t space = raw.find(' ');
  const std::size_t end = raw.find("\r\n\r\n");
  if (space == std::string::npos || end == std::string::npos) return response;
  response.status = std::atoi(raw.c_str() + space + 1);
  response.head = raw.substr(0, end);
  response.body = raw.substr(end + 4);
  return response;
}

}  // namespace attend::testing

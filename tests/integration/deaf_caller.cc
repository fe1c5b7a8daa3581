#include "tests/integration/deaf_caller.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/support/wait.h"

namespace attend::testing {

namespace {

// Frames and settings of RFC 9113, and a header block of RFC 7541.
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum FrameType : std::uint8_t { kData = 0, kHeaders = 1, kResetStream = 3, kSettings = 4 };
constexpr std::uint8_t kEndStream = 0x1;
constexpr std::uint8_t kEndHeaders = 0x4;
constexpr std::uint16_t kInitialWindowSize = 4;
constexpr std::size_t kFrameHeaderBytes = 9;
constexpr std::uint32_t kCall = 1;

std::string BigEndian(std::uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return text;
}

std::string Frame(FrameType type, std::uint8_t flags, std::uint32_t stream,
                  const std::string& payload) {
  return BigEndian(static_cast<std::uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + BigEndian(stream, 4) + payload;
}

std::string Text(const std::string& text) {
  return BigEndian(static_cast<std::uint32_t>(text.size()), 1) + text;
}

// Without indexing, its name in full.
std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + Text(name) + Text(value);
}

}  // namespace

DeafCaller::DeafCaller(const std::string& target) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(target.substr(target.find(':') + 1))));
  const timeval patience = {.tv_sec = kPatience.count(), .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

DeafCaller::~DeafCaller() { close(socket_); }

void DeafCaller::Call(const std::string& message) {
  const std::string headers = Header(":method", "POST") + Header(":scheme", "http") +
                              Header(":path", "/attend.v1.AttentionService/Attend") +
                              Header(":authority", "localhost") +
                              Header("content-type", "application/grpc") + Header("te", "trailers");
  const std::string data =
      std::string(1, '\0') + BigEndian(static_cast<std::uint32_t>(message.size()), 4) + message;
  EXPECT_LT(data.size(), std::size_t{16} << 10);
  Send(kPreface + Frame(kSettings, 0, 0, BigEndian(kInitialWindowSize, 2) + BigEndian(0, 4)) +
       Frame(kHeaders, kEndHeaders, kCall, headers) + Frame(kData, kEndStream, kCall, data));
}

bool DeafCaller::WaitForReset() {
  std::string header;
  std::string payload;
  while (Receive(kFrameHeaderBytes, header)) {
    std::size_t size = 0;
    for (int i = 0; i < 3; ++i) size = size << 8 | static_cast<std::uint8_t>(header[i]);
    if (!Receive(size, payload)) return false;
    if (header[3] == kResetStream) return true;
  }
  return false;
}

void DeafCaller::Send(const std::string& bytes) const {
  EXPECT_EQ(send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

bool DeafCaller::Receive(std::size_t size, std::string& bytes) const {
  bytes.resize(size);
  return size == 0 || recv(socket_, bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

}  // namespace attend::testing

#include "server/process/listen_failure.h"

#include <arpa/inet.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_folder.h"

namespace attend {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uid_t kNobody = 65534;

// Listens on a free port of this host.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const bound = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, bound, size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, bound, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(fd_); }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

std::string FailureOf(const std::string& address) {
  return FindListenFailure(*ParseAddress(address)).value_or("none");
}

TEST(ListenFailureTest, IsNoneWhereNothingIsWrong) {
  const testing::TempFolder folder;
  const std::string path = folder.PathOf("a.sock");
  EXPECT_EQ(FailureOf("127.0.0.1:0"), "none");
  EXPECT_EQ(FailureOf("localhost:0"), "none");
  EXPECT_EQ(FailureOf("unix:" + path), "none");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ListenFailureTest, TellsThatAPortIsTaken) {
  const Listener other;
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const std::string address = absl::StrCat(host, ":", other.port());
    if (FailureOf(address) == "none") continue;  // localhost has another address, which is free
    EXPECT_THAT(FailureOf(address),
                AllOf(StartsWith(absl::StrCat("cannot listen on ", address,
                                              ": Address already in use; another process")),
                      HasSubstr("choose another address")));
  }
  EXPECT_NE(FailureOf(absl::StrCat("127.0.0.1:", other.port())), "none");
}

TEST(ListenFailureTest, TellsThatAnAddressIsOfAnotherMachine) {
  EXPECT_THAT(FailureOf("192.0.2.1:0"),  // of documentation: nobody has it
              AllOf(StartsWith("cannot listen on 192.0.2.1:0: Cannot assign requested address; no "
                               "network interface of this machine has the address 192.0.2.1"),
                    HasSubstr("choose one that it has")));
}

TEST(ListenFailureTest, TellsThatAFolderIsMissing) {
  EXPECT_THAT(FailureOf("unix:/no/such/folder/a.sock"),
              AllOf(HasSubstr("unix:/no/such/folder/a.sock: No such file or directory; the folder"),
                    HasSubstr("create it")));
}

// Containers often let everybody take any port.
int FirstPortOfAnyUser() {
  int port = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> port;
  return port;
}

TEST(ListenFailureTest, TellsThatAUserMayNot) {
  const uid_t self = geteuid();
  const testing::TempFolder folder;  // of this user alone
  if (self == 0) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const std::string socket_failure = FailureOf("unix:" + folder.PathOf("a.sock"));
  const std::string port_failure = FailureOf("127.0.0.1:1");
  if (self == 0) {
    ASSERT_EQ(seteuid(self), 0);
    EXPECT_THAT(socket_failure, AllOf(HasSubstr("Permission denied"),
                                      HasSubstr("in a folder that this user may write to")));
  }
  if (FirstPortOfAnyUser() <= 1) {
    EXPECT_EQ(port_failure, "none");
    return;
  }
  EXPECT_THAT(port_failure, AllOf(HasSubstr("Permission denied; this user may not take port 1;"),
                                  HasSubstr("choose one from 1024 on")));
}

}  // namespace
}  // namespace attend

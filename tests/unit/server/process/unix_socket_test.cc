#include "server/process/unix_socket.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"

namespace attend {
namespace {

using ::testing::HasSubstr;

// Listens on the path until closed. The socket's file stays, as it does when a server dies.
class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 0), 0);
  }
  ~Listener() { close(fd_); }

 private:
  const int fd_;
};

class UnixSocketTest : public ::testing::Test {
 protected:
  const testing::TempFolder folder_;
  const std::string path_ = folder_.PathOf("a.sock");
};

TEST_F(UnixSocketTest, AFreePathIsFree) { EXPECT_TRUE(FreeUnixSocketPath(path_).ok()); }

TEST_F(UnixSocketTest, RemovesTheSocketOfADeadServer) {
  { const Listener dead(path_); }
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(FreeUnixSocketPath(path_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, LeavesALivingServerAlone) {
  const Listener alive(path_);
  // The second attempt finds the backlog full of the first.
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = FreeUnixSocketPath(path_);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("another server listens on it"));
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, LeavesOtherFilesAlone) {
  std::ofstream(path_) << "precious";
  const absl::Status status = FreeUnixSocketPath(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is a file and no socket"));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace attend

#include "client/cpp/shared_memory_object.h"

#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace attend::client_internal {
namespace {

constexpr std::uint64_t kBytes = 1 << 16;

class SharedMemoryObjectTest : public ::testing::Test {
 protected:
  // As the server opens it; below 0 where there is no such name.
  int OpenByName() const { return shm_open(object_->name().c_str(), O_RDWR | O_CLOEXEC, 0); }

  std::unique_ptr<SharedMemoryObject> object_ = *SharedMemoryObject::Create(kBytes);
};

// A process that is killed before it registers leaves nothing in /dev/shm.
TEST_F(SharedMemoryObjectTest, HasItsNameFromLinkToUnlink) {
  std::memset(object_->data(), 7, kBytes);
  EXPECT_LT(OpenByName(), 0);
  ASSERT_TRUE(object_->Link().ok());
  EXPECT_TRUE(object_->Link().ok());
  const int file = OpenByName();
  ASSERT_GE(file, 0);
  object_->Unlink();
  EXPECT_LT(OpenByName(), 0);

  struct stat about = {};
  ASSERT_EQ(fstat(file, &about), 0);
  EXPECT_EQ(about.st_size, static_cast<off_t>(kBytes));
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_EQ(about.st_nlink, 0u);
  char last = 0;
  EXPECT_EQ(pread(file, &last, 1, kBytes - 1), 1);
  EXPECT_EQ(last, 7);
  close(file);
}

TEST_F(SharedMemoryObjectTest, TakesItsNameAlong) {
  ASSERT_TRUE(object_->Link().ok());
  const std::string name = object_->name();
  object_.reset();
  EXPECT_LT(shm_open(name.c_str(), O_RDWR, 0), 0);
}

// What tells a server that this process has ended.
TEST_F(SharedMemoryObjectTest, IsLockedForAsLongAsItLives) {
  ASSERT_TRUE(object_->Link().ok());
  const int file = OpenByName();
  ASSERT_GE(file, 0);
  EXPECT_NE(flock(file, LOCK_EX | LOCK_NB), 0);
  object_.reset();
  EXPECT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
  close(file);
}

}  // namespace
}  // namespace attend::client_internal

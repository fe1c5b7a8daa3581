// A shared-memory object of a caller, for tests.
#ifndef ATTEND_TESTS_SUPPORT_SHARED_MEMORY_OBJECT_H_
#define ATTEND_TESTS_SUPPORT_SHARED_MEMORY_OBJECT_H_

#include <atomic>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace attend::testing {

// Exists as long as this does.
class SharedMemoryObject {
 public:
  explicit SharedMemoryObject(std::size_t bytes, int mode = 0600)
      : name_("/attend-test-of-memory-" + std::to_string(getpid()) + "-" +
              std::to_string(++number_)),
        file_(shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, mode)) {
    EXPECT_GE(file_, 0);
    Resize(bytes);
  }
  ~SharedMemoryObject() {
    close(file_);
    shm_unlink(name_.c_str());
  }
  SharedMemoryObject(const SharedMemoryObject&) = delete;
  SharedMemoryObject& operator=(const SharedMemoryObject&) = delete;

  const std::string& name() const { return name_; }

  void Resize(std::size_t bytes) { EXPECT_EQ(ftruncate(file_, static_cast<off_t>(bytes)), 0); }
  void Write(std::size_t offset, const std::vector<std::byte>& bytes) {
    EXPECT_EQ(pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  }
  std::vector<std::byte> Read(std::size_t offset, std::size_t size) const {
    std::vector<std::byte> bytes(size);
    EXPECT_EQ(pread(file_, bytes.data(), size, static_cast<off_t>(offset)),
              static_cast<ssize_t>(size));
    return bytes;
  }
  // As long-lived owners do; it ends with the object, or here.
  void Lock() { EXPECT_EQ(flock(file_, LOCK_EX | LOCK_NB), 0); }
  void Unlock() { EXPECT_EQ(flock(file_, LOCK_UN), 0); }
  // Makes whoever opens the object wait. The kernel tells the owner so by SIGIO, which is ignored.
  bool Lease() {
    std::signal(SIGIO, SIG_IGN);
    return fcntl(file_, F_SETLEASE, F_WRLCK) == 0;
  }
  std::size_t size() const { return static_cast<std::size_t>(lseek(file_, 0, SEEK_END)); }

 private:
  static inline std::atomic<int> number_{0};
  const std::string name_;
  const int file_;
};

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_SHARED_MEMORY_OBJECT_H_

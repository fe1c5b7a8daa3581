#include "core/base/file_io.h"

#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace attend {

namespace {

// Closes its file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  // Closes now. False, with errno, where the last of the data could not be written.
  bool Close() {
    const int fd = fd_;
    fd_ = -1;
    return close(fd) == 0;
  }

 private:
  int fd_;
};

absl::Status ErrnoStatus(const std::string& path) { return absl::ErrnoToStatus(errno, path); }

// Reads until `bytes` is full or the file ends; returns how much was read, or -1 with errno.
std::ptrdiff_t ReadFully(int fd, std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = read(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return static_cast<std::ptrdiff_t>(done);
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO that nobody writes to must not wait.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return ErrnoStatus(path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  std::vector<std::byte> bytes;
  try {
    bytes.resize(static_cast<std::size_t>(info.st_size));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": no memory for its ", info.st_size, " bytes"));
  }
  const std::ptrdiff_t count = ReadFully(file.get(), bytes);
  if (count < 0) return ErrnoStatus(path);
  bytes.resize(static_cast<std::size_t>(count));
  return bytes;
}

absl::Status WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) return ErrnoStatus(path);
  while (!bytes.empty()) {
    const ssize_t count = write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(path);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return file.Close() ? absl::OkStatus() : ErrnoStatus(path);
}

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace attend

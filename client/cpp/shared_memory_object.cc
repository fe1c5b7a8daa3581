#include "client/cpp/shared_memory_object.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace attend::client_internal {

namespace {

// Where the C library keeps what shm_open opens.
constexpr char kFolder[] = "/dev/shm";
constexpr char kOpenFiles[] = "/proc/self/fd";

absl::Status Failed(absl::string_view what, std::uint64_t size_bytes, int error) {
  const std::string text = absl::StrCat("shared_memory_bytes: ", what, " of ", size_bytes,
                                        " bytes: ", std::generic_category().message(error));
  if (error == ENOSPC || error == ENOMEM || error == EMFILE || error == ENFILE || error == EFBIG) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, "; ask for less, or give /dev/shm more (containers: --shm-size)"));
  }
  return absl::InternalError(text);
}

// What the file system of `file` could give; so that what is far too much is refused before the
// host has given all that it has.
std::uint64_t AvailableBytes(int file) {
  struct statvfs about = {};
  if (fstatvfs(file, &about) == 0 && about.f_blocks > 0) {
    return std::uint64_t{about.f_bavail} * about.f_frsize;
  }
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// posix_fallocate begins anew after each signal, and so may never end where a profiler sends them.
int Reserve(int file, std::uint64_t size_bytes) {
  constexpr std::uint64_t kStep = std::uint64_t{16} << 20;
  if (size_bytes > AvailableBytes(file)) return ENOSPC;
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::uint64_t step = std::min(kStep, size_bytes - done);
    const int error = posix_fallocate(file, static_cast<off_t>(done), static_cast<off_t>(step));
    if (error != 0 && error != EINTR) return error;
    if (error == 0) done += step;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryObject>> SharedMemoryObject::Create(
    std::uint64_t size_bytes) {
  std::array<char, 16> random;
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return absl::InternalError("shared_memory_bytes: the kernel gave no random numbers");
  }
  std::string name = absl::StrCat(
      "/attend-", absl::BytesToHexString(absl::string_view(random.data(), random.size())));
  std::unique_ptr<SharedMemoryObject> object(new SharedMemoryObject(std::move(name), size_bytes));
  const int file = object->Open();
  if (file < 0) return Failed("cannot make an object", size_bytes, errno);
  // Without it the server keeps the memory of a dead client for longer, and all else is as it was.
  flock(file, LOCK_EX | LOCK_NB);
  const int error = Reserve(file, size_bytes);
  if (error != 0) return Failed("cannot get the memory for an object", size_bytes, error);
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) return Failed("cannot map an object", size_bytes, errno);
  object->data_ = static_cast<std::byte*>(data);
  return object;
}

int SharedMemoryObject::Open() {
  constexpr mode_t kForThisUser = 0600;
  // Without a name, so that a process that is killed leaves none behind. It gets one through /proc.
  if (access(kOpenFiles, X_OK) == 0) {
    file_ = open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, kForThisUser);
  }
  if (file_ >= 0) return file_;
  file_ = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kForThisUser);
  has_name_ = file_ >= 0;
  return file_;
}

absl::Status SharedMemoryObject::Link() {
  if (has_name_) return absl::OkStatus();
  const std::string from = absl::StrCat(kOpenFiles, "/", file_);
  const std::string to = absl::StrCat(kFolder, name_);
  if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return Failed("cannot name an object", size_bytes_, errno);
  }
  has_name_ = true;
  return absl::OkStatus();
}

void SharedMemoryObject::Unlink() {
  if (std::exchange(has_name_, false)) shm_unlink(name_.c_str());
}

SharedMemoryObject::~SharedMemoryObject() {
  Unlink();
  if (data_ != nullptr) munmap(data_, size_bytes_);
  if (file_ >= 0) close(file_);
}

}  // namespace attend::client_internal

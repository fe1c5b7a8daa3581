#include "server/shared_memory/shared_memory_region.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend {

namespace {

constexpr absl::string_view kPrefix = "/attend-";
constexpr std::size_t kLeastRest = 16;
constexpr std::size_t kMostRest = 200;

// Objects of others are not for callers to name, wherever they may be opened.
bool IsName(absl::string_view name) {
  if (!absl::StartsWith(name, kPrefix)) return false;
  const absl::string_view rest = name.substr(kPrefix.size());
  if (rest.size() < kLeastRest || rest.size() > kMostRest) return false;
  return std::all_of(rest.begin(), rest.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

absl::Status CannotOpen(int error) {
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(
          "name: the server sees no shared-memory object of that name; in containers, let client "
          "and server share /dev/shm or the IPC namespace (such as --ipc=container:NAME)");
    case EACCES:
    case EPERM:
    case EWOULDBLOCK:  // its owner holds a lease, which O_NONBLOCK spares us to wait for
      return absl::PermissionDeniedError(
          "name: the server may not open this object for reading and writing");
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError("the server cannot open another object; try again later");
    default:
      return InvalidField("name", "names nothing that can be opened as shared memory");
  }
}

absl::Status Shortened(absl::string_view field) {
  return InvalidField(field,
                      "lies in a region whose object has been made shorter since it was "
                      "registered");
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> SharedMemoryRegion::Open(
    const std::string& name, std::uint64_t size_bytes) {
  if (!IsName(name)) {
    return InvalidField("name", absl::StrCat("has not the form of a name; expected \"", kPrefix,
                                             "\" and then ", kLeastRest, " to ", kMostRest,
                                             " letters, digits, \"-\", \"_\" or \".\""));
  }
  const int file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  if (file < 0) return CannotOpen(errno);
  absl::Cleanup close_file = [file] { close(file); };
  struct stat about = {};
  const bool is_object = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  std::shared_ptr<SharedMemoryRegion> region(
      new SharedMemoryRegion(file, size_bytes, {about.st_dev, about.st_ino}));
  std::move(close_file).Cancel();  // the region does
  if (!is_object) {
    return InvalidField("name", "names nothing that can be read as shared memory");
  }
  const auto length = static_cast<std::uint64_t>(about.st_size);
  if (size_bytes < 1 || size_bytes > length) {
    return InvalidField("size_bytes", absl::StrCat("is ", size_bytes, "; expected 1 to ", length,
                                                   ", the object's length"));
  }
  return region;
}

SharedMemoryRegion::~SharedMemoryRegion() { close(file_); }

int SharedMemoryRegion::LockError() const {
  if (flock(file_, LOCK_SH | LOCK_NB) != 0) return errno;
  flock(file_, LOCK_UN);
  return 0;
}

bool SharedMemoryRegion::IsAbandoned() const { return was_locked_ && LockError() == 0; }

absl::Status SharedMemoryRegion::CheckRange(std::uint64_t offset, std::uint64_t size,
                                            absl::string_view field) const {
  // No sum, which could wrap around.
  if (offset > size_bytes_) {
    return InvalidField(
        absl::StrCat(field, ".offset"),
        absl::StrCat("is ", offset, "; expected at most ", size_bytes_, ", the region's size"));
  }
  if (size > size_bytes_ - offset) {
    return InvalidField(absl::StrCat(field, ".size_bytes"),
                        absl::StrCat("is ", size, "; expected at most ", size_bytes_ - offset,
                                     ", what the region has from offset ", offset, " on"));
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryRegion::Read(std::uint64_t offset, std::span<std::byte> to,
                                      absl::string_view field) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t count =
        pread(file_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Shortened(field);
    done += static_cast<std::size_t>(count);
  }
  read_bytes_.fetch_add(to.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

bool SharedMemoryRegion::IsWhole() const {
  struct stat about = {};
  return fstat(file_, &about) == 0 && static_cast<std::uint64_t>(about.st_size) >= size_bytes_;
}

absl::Status SharedMemoryRegion::Write(std::uint64_t offset, std::span<const std::byte> from,
                                       absl::string_view field) const {
  // Writing past the end would make the object longer again, at the host's expense.
  if (!IsWhole()) return Shortened(field);
  std::size_t done = 0;
  while (done < from.size()) {
    const ssize_t count =
        pwrite(file_, from.data() + done, from.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == ENOSPC || errno == ENOMEM)) {
      return absl::ResourceExhaustedError("the host has no shared memory left; try again later");
    }
    if (count <= 0) return InvalidField(field, "lies in a region that cannot be written");
    done += static_cast<std::size_t>(count);
  }
  written_bytes_.fetch_add(from.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace attend

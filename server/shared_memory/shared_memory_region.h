// A caller's shared memory, as the server reads and writes it.
#ifndef ATTEND_SERVER_SHARED_MEMORY_SHARED_MEMORY_REGION_H_
#define ATTEND_SERVER_SHARED_MEMORY_SHARED_MEMORY_REGION_H_

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attend {

// An open shared-memory object of somebody who may write to it, cut it off or remove it at any
// moment. It is never mapped: pread and pwrite answer with an error where a mapping would end the
// process with SIGBUS, and what was read once cannot change between its check and its use.
// Thread-safety: safe from any thread.
class SharedMemoryRegion {
 public:
  // Opens the object of that name (see shared_memory.proto for its form).
  // Errors: INVALID_ARGUMENT naming "name" or "size_bytes"; NOT_FOUND; PERMISSION_DENIED;
  // RESOURCE_EXHAUSTED where the process has no file descriptor left. None says more of the host
  // than the caller said itself.
  static absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> Open(const std::string& name,
                                                                  std::uint64_t size_bytes);
  ~SharedMemoryRegion();
  SharedMemoryRegion(const SharedMemoryRegion&) = delete;
  SharedMemoryRegion& operator=(const SharedMemoryRegion&) = delete;

  // Whether the process that owned the object is known to have ended, or to have given it up: it
  // held a lock of the object (flock) when the object was opened, and nobody does now. Owners
  // without a lock are never known to.
  bool IsAbandoned() const;

  // The same for two regions of one object, and for no others that are open.
  using Object = std::pair<dev_t, ino_t>;
  Object object() const { return object_; }

  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t written_bytes() const { return written_bytes_.load(std::memory_order_relaxed); }

  // OK if `size` bytes from `offset` on lie in the region, else INVALID_ARGUMENT naming
  // "<field>.offset" or "<field>.size_bytes".
  absl::Status CheckRange(std::uint64_t offset, std::uint64_t size, absl::string_view field) const;

  // Fills `to` from `offset` on. CheckRange must have passed.
  // Errors: INVALID_ARGUMENT naming `field` if the object has become shorter than the region.
  absl::Status Read(std::uint64_t offset, std::span<std::byte> to, absl::string_view field) const;

  // Writes `from` from `offset` on. CheckRange must have passed.
  // Errors: INVALID_ARGUMENT naming `field` if the object has become shorter than the region, or
  // can only be read; RESOURCE_EXHAUSTED if the host has no shared memory left.
  absl::Status Write(std::uint64_t offset, std::span<const std::byte> from,
                     absl::string_view field) const;

 private:
  SharedMemoryRegion(int file, std::uint64_t size_bytes, Object object)
      : file_(file),
        size_bytes_(size_bytes),
        object_(object),
        was_locked_(LockError() == EWOULDBLOCK) {}

  // Takes the object's shared lock and gives it back: 0, or why not, EWOULDBLOCK while its owner
  // holds the exclusive one. Shared, so that two who look at once do not take each other for
  // owners.
  int LockError() const;

  // Whether the object still is as long as the region.
  bool IsWhole() const;

  const int file_;
  const std::uint64_t size_bytes_;
  const Object object_;
  const bool was_locked_;
  mutable std::atomic<std::uint64_t> read_bytes_{0};
  mutable std::atomic<std::uint64_t> written_bytes_{0};
};

}  // namespace attend

#endif  // ATTEND_SERVER_SHARED_MEMORY_SHARED_MEMORY_REGION_H_

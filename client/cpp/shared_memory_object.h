// A shared-memory object of this process.
#ifndef ATTEND_CLIENT_CPP_SHARED_MEMORY_OBJECT_H_
#define ATTEND_CLIENT_CPP_SHARED_MEMORY_OBJECT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attend::client_internal {

// A POSIX object under a name that nobody guesses, for this user alone, mapped. Its memory is taken
// from the host at once: a mapping of memory that is not there would end the process when it is
// written. It is locked (flock, exclusively), so that the server sees when this process has ended,
// however it did.
class SharedMemoryObject {
 public:
  // RESOURCE_EXHAUSTED, naming shared_memory_bytes, where the host has no room for it (/dev/shm of
  // a container often has 64 MiB); INTERNAL where the system fails otherwise.
  static absl::StatusOr<std::unique_ptr<SharedMemoryObject>> Create(std::uint64_t size_bytes);
  // Also removes the name.
  ~SharedMemoryObject();
  SharedMemoryObject(const SharedMemoryObject&) = delete;
  SharedMemoryObject& operator=(const SharedMemoryObject&) = delete;

  // Gives the object its name, unless it has it: others find it only from here on. INTERNAL where
  // the system does not let it. Not thread-safe, nor is Unlink.
  absl::Status Link();

  // As for shm_open. For those who look for the object between Link and Unlink.
  const std::string& name() const { return name_; }
  std::byte* data() const { return data_; }
  std::uint64_t size_bytes() const { return size_bytes_; }

  // Removes the name: who has opened the object keeps it, and nobody else finds it.
  void Unlink();

 private:
  SharedMemoryObject(std::string name, std::uint64_t size_bytes)
      : name_(std::move(name)), size_bytes_(size_bytes) {}

  // Opens a new object, without a name where the system can do that.
  int Open();

  const std::string name_;
  const std::uint64_t size_bytes_;
  int file_ = -1;  // open for as long as the lock is to last
  std::byte* data_ = nullptr;
  bool has_name_ = false;
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_SHARED_MEMORY_OBJECT_H_

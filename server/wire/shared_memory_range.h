// Tensors that lie in shared memory.
#ifndef ATTEND_SERVER_WIRE_SHARED_MEMORY_RANGE_H_
#define ATTEND_SERVER_WIRE_SHARED_MEMORY_RANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attend/v1/tensor.pb.h"
#include "server/shared_memory/shared_memory_registry.h"

namespace attend {

// What the caller of a request may do with shared memory.
struct SharedMemoryAccess {
  SharedMemoryRegistry* registry = nullptr;  // null: the server does not offer it
  bool over_unix_socket = false;             // how the caller is connected
};

// OK if the caller may use shared memory. UNIMPLEMENTED, naming `field`, where the server does not
// offer it; FAILED_PRECONDITION where the caller did not come over a Unix socket.
absl::Status CheckSharedMemoryAccess(const SharedMemoryAccess& access, absl::string_view field);

// A range of a region, which it keeps open.
class SharedMemoryRange {
 public:
  // No range.
  SharedMemoryRange() = default;

  // Finds the region that `slice` names, and checks that the range lies in it.
  // Errors: as CheckSharedMemoryAccess; NOT_FOUND for an unknown handle and INVALID_ARGUMENT for a
  // range outside the region, both naming a field below `field`.
  static absl::StatusOr<SharedMemoryRange> Find(const v1::SharedMemorySlice& slice,
                                                const SharedMemoryAccess& access,
                                                absl::string_view field);

  // Whether the two share a byte. Nothing overlaps a range that is empty or none.
  bool Overlaps(const SharedMemoryRange& other) const;

  // Of the request; empty for no range.
  const std::string& field() const { return field_; }

  bool present() const { return region_ != nullptr; }
  std::size_t size() const { return size_; }

  // Both for as many bytes as the range has. Errors: as SharedMemoryRegion.
  absl::Status Read(std::span<std::byte> to) const { return region_->Read(offset_, to, field_); }
  absl::Status Write(std::span<const std::byte> from) const {
    return region_->Write(offset_, from, field_);
  }

 private:
  std::shared_ptr<SharedMemoryRegion> region_;
  std::uint64_t offset_ = 0;
  std::size_t size_ = 0;
  std::string field_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_SHARED_MEMORY_RANGE_H_

#include "server/wire/shared_memory_range.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "server/wire/unknown_fields.h"

namespace attend {

absl::Status CheckSharedMemoryAccess(const SharedMemoryAccess& access, absl::string_view field) {
  if (access.registry == nullptr) {
    return UnimplementedField(field,
                              "is not offered by this server; start it with --shared-memory, or "
                              "send the bytes in the messages");
  }
  if (!access.over_unix_socket) {
    return absl::FailedPreconditionError(
        absl::StrCat(field,
                     ": is offered over a Unix socket alone; connect over one, or send the "
                     "bytes in the messages"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedMemoryRange> SharedMemoryRange::Find(const v1::SharedMemorySlice& slice,
                                                          const SharedMemoryAccess& access,
                                                          absl::string_view field) {
  absl::Status status = CheckSharedMemoryAccess(access, field);
  status.Update(RefuseUnknownFields(slice, field));
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> region =
      access.registry->Find(slice.handle(), absl::StrCat(field, ".handle"));
  if (!region.ok()) return region.status();
  status = (*region)->CheckRange(slice.offset(), slice.size_bytes(), field);
  if (!status.ok()) return status;
  SharedMemoryRange range;
  range.region_ = *std::move(region);
  range.offset_ = slice.offset();
  range.size_ = static_cast<std::size_t>(slice.size_bytes());
  range.field_ = std::string(field);
  return range;
}

bool SharedMemoryRange::Overlaps(const SharedMemoryRange& other) const {
  if (region_ == nullptr || region_ != other.region_ || size_ == 0 || other.size_ == 0) {
    return false;
  }
  // No sum, which could wrap around.
  return offset_ <= other.offset_ ? other.offset_ - offset_ < size_
                                  : offset_ - other.offset_ < other.size_;
}

}  // namespace attend

#include "server/shared_memory/shared_memory_registry.h"

#include <array>
#include <iterator>
#include <sys/random.h>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace attend {

namespace {

absl::StatusOr<std::string> NewHandle() {
  std::array<char, 16> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return absl::InternalError("the kernel gave no random numbers");
  }
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

absl::Status Unknown(absl::string_view field) {
  return absl::NotFoundError(absl::StrCat(
      field,
      ": is no handle of a registered region; it may have been idle for long, or the server "
      "was started again: register it anew"));
}

}  // namespace

SharedMemoryRegistry::SharedMemoryRegistry(const SharedMemoryOptions& options, Clock& clock)
    : options_(options), clock_(clock) {}

absl::StatusOr<std::string> SharedMemoryRegistry::Register(const std::string& name,
                                                           std::uint64_t size_bytes) {
  absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> region =
      SharedMemoryRegion::Open(name, size_bytes);
  if (!region.ok()) return region.status();
  absl::StatusOr<std::string> handle = NewHandle();
  if (!handle.ok()) return handle;
  ForgetUnused();
  const absl::MutexLock lock(&mutex_);
  for (const auto& [other, entry] : regions_) {
    if (entry.region->object() == (*region)->object()) {
      return absl::AlreadyExistsError(
          "name: this object is registered already; use its handle, or make another object");
    }
  }
  if (static_cast<std::int64_t>(regions_.size()) >= options_.max_regions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server knows ", options_.max_regions,
                     " regions, and all are in use; unregister one, or try again later"));
  }
  regions_[*handle] = {*std::move(region), clock_.Now()};
  return handle;
}

void SharedMemoryRegistry::ForgetUnused() {
  // Closed after the lock. Taken over as nodes, which needs no memory.
  std::map<std::string, Entry, std::less<>> forgotten;
  const absl::MutexLock lock(&mutex_);
  const absl::Time oldest = clock_.Now() - options_.idle_time;
  for (auto at = regions_.begin(); at != regions_.end();) {
    const auto next = std::next(at);
    const bool forget = at->second.used <= oldest || at->second.region->IsAbandoned();
    if (forget) forgotten.insert(regions_.extract(at));
    at = next;
  }
}

absl::Status SharedMemoryRegistry::Unregister(absl::string_view handle) {
  std::shared_ptr<SharedMemoryRegion> region;  // closed after the lock
  const absl::MutexLock lock(&mutex_);
  const auto found = regions_.find(handle);
  if (found == regions_.end()) return Unknown("handle");
  region = std::move(found->second.region);
  regions_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> SharedMemoryRegistry::Find(
    absl::string_view handle, absl::string_view field) {
  const absl::MutexLock lock(&mutex_);
  const auto found = regions_.find(handle);
  if (found == regions_.end()) return Unknown(field);
  found->second.used = clock_.Now();
  return found->second.region;
}

std::int64_t SharedMemoryRegistry::num_regions() const {
  const absl::MutexLock lock(&mutex_);
  return static_cast<std::int64_t>(regions_.size());
}

}  // namespace attend

// The regions of shared memory that callers have made known.
#ifndef ATTEND_SERVER_SHARED_MEMORY_SHARED_MEMORY_REGISTRY_H_
#define ATTEND_SERVER_SHARED_MEMORY_SHARED_MEMORY_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/schedule/clock.h"
#include "server/shared_memory/shared_memory_region.h"

namespace attend {

struct SharedMemoryOptions {
  // Regions at once. At least 1.
  std::int64_t max_regions = 256;
  // A region that has not been named for this long is forgotten: its owner may have died without a
  // word.
  absl::Duration idle_time = absl::Minutes(10);
};

// Handles are the only way to a region, and cannot be guessed (128 bits of the kernel's random
// numbers), so that no caller reaches the region of another.
// Thread-safety: safe from any thread.
class SharedMemoryRegistry {
 public:
  // `clock` must outlive the registry.
  SharedMemoryRegistry(const SharedMemoryOptions& options, Clock& clock);

  // Returns the handle. Errors: as SharedMemoryRegion::Open; ALREADY_EXISTS for an object that is
  // registered, since it may be another caller's, who alone knows its handle; RESOURCE_EXHAUSTED
  // while there are max_regions, all of them in use.
  absl::StatusOr<std::string> Register(const std::string& name, std::uint64_t size_bytes);

  // NOT_FOUND for a handle that is not known. Whoever holds the region may go on using it.
  absl::Status Unregister(absl::string_view handle);

  // The region of a handle, which counts as used now. NOT_FOUND, naming `field`.
  absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> Find(absl::string_view handle,
                                                           absl::string_view field);

  // Forgets the regions that have been idle for too long, and those whose owner has ended (see
  // SharedMemoryRegion::IsAbandoned). Register does so first; to be called now and then besides, so
  // that memory does not wait for another caller. Cost: a few system calls for each region. Throws
  // nothing.
  void ForgetUnused();

  std::int64_t num_regions() const;

 private:
  struct Entry {
    std::shared_ptr<SharedMemoryRegion> region;
    absl::Time used;
  };

  const SharedMemoryOptions options_;
  Clock& clock_;
  mutable absl::Mutex mutex_;
  // By handle. Abseil's maps do not survive it when memory runs out while they grow.
  std::map<std::string, Entry, std::less<>> regions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend

#endif  // ATTEND_SERVER_SHARED_MEMORY_SHARED_MEMORY_REGISTRY_H_

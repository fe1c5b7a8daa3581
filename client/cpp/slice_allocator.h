// Ranges of a fixed size of bytes, given out and taken back.
#ifndef ATTEND_CLIENT_CPP_SLICE_ALLOCATOR_H_
#define ATTEND_CLIENT_CPP_SLICE_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace attend::client_internal {

// First fit; neighbours that are free become one. Thread-safety: safe from any thread.
class SliceAllocator {
 public:
  // Every range begins at a multiple of it and is rounded up to one.
  static constexpr std::uint64_t kAlignment = 64;

  // What is left of `size_bytes` past its last multiple of kAlignment is not given out.
  explicit SliceAllocator(std::uint64_t size_bytes);

  // The offset of a range of `size_bytes`, at least 1; nothing where there is none.
  std::optional<std::uint64_t> Take(std::uint64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // `offset`: as Take returned it.
  void Free(std::uint64_t offset) ABSL_LOCKS_EXCLUDED(mutex_);

  // The sum of what is not taken.
  std::uint64_t free_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_ ABSL_GUARDED_BY(mutex_);  // sizes, by offset
  absl::flat_hash_map<std::uint64_t, std::uint64_t> taken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_SLICE_ALLOCATOR_H_

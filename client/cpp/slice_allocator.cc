#include "client/cpp/slice_allocator.h"

#include <algorithm>
#include <iterator>

namespace attend::client_internal {

SliceAllocator::SliceAllocator(std::uint64_t size_bytes) {
  const std::uint64_t usable = size_bytes - size_bytes % kAlignment;
  absl::MutexLock lock(&mutex_);
  if (usable > 0) free_[0] = usable;
}

std::optional<std::uint64_t> SliceAllocator::Take(std::uint64_t size_bytes) {
  const std::uint64_t rest = size_bytes % kAlignment;
  absl::MutexLock lock(&mutex_);
  const auto fits = [&](const auto& range) {
    // No sum, which could wrap around; sizes of ranges are multiples themselves.
    return range.second >= size_bytes;
  };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) return std::nullopt;
  const std::uint64_t size = rest == 0 ? size_bytes : size_bytes + (kAlignment - rest);
  const auto [offset, whole] = *found;
  free_.erase(found);
  if (whole > size) free_[offset + size] = whole - size;
  taken_[offset] = size;
  return offset;
}

void SliceAllocator::Free(std::uint64_t offset) {
  absl::MutexLock lock(&mutex_);
  const auto taken = taken_.find(offset);
  std::uint64_t begin = offset;
  std::uint64_t size = taken->second;
  taken_.erase(taken);
  const auto next = free_.find(begin + size);
  if (next != free_.end()) {
    size += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
    }
  }
  free_[begin] = size;
}

std::uint64_t SliceAllocator::free_bytes() const {
  absl::MutexLock lock(&mutex_);
  std::uint64_t sum = 0;
  for (const auto& [offset, size] : free_) sum += size;
  return sum;
}

}  // namespace attend::client_internal

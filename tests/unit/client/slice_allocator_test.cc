#include "client/cpp/slice_allocator.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace attend::client_internal {
namespace {

constexpr std::uint64_t kUnit = SliceAllocator::kAlignment;

TEST(SliceAllocatorTest, GivesTheFirstRangeThatFits) {
  SliceAllocator allocator(10 * kUnit + 7);
  EXPECT_EQ(allocator.free_bytes(), 10 * kUnit);
  EXPECT_EQ(allocator.Take(1), 0u);
  EXPECT_EQ(allocator.Take(2 * kUnit), kUnit);
  EXPECT_EQ(allocator.Take(kUnit + 1), 3 * kUnit);
  allocator.Free(kUnit);
  EXPECT_EQ(allocator.Take(3 * kUnit), 5 * kUnit);
  EXPECT_EQ(allocator.Take(2 * kUnit), kUnit);
  EXPECT_EQ(allocator.Take(2 * kUnit), 8 * kUnit);
  EXPECT_EQ(allocator.Take(1), std::nullopt);
}

TEST(SliceAllocatorTest, JoinsWhatComesBackWithItsNeighbours) {
  SliceAllocator allocator(4 * kUnit);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(allocator.Take(kUnit).has_value());
  for (const std::uint64_t place : {1, 3, 2, 0}) allocator.Free(place * kUnit);
  EXPECT_EQ(allocator.Take(4 * kUnit), 0u);
}

TEST(SliceAllocatorTest, HasNothingForSizesThatDoNotFit) {
  SliceAllocator allocator(kUnit);
  EXPECT_EQ(allocator.Take(kUnit + 1), std::nullopt);
  EXPECT_EQ(allocator.Take(~std::uint64_t{0}), std::nullopt);
  EXPECT_EQ(SliceAllocator(kUnit - 1).Take(1), std::nullopt);
}

// Ranges never overlap, never leave the whole, begin aligned, and all come back.
TEST(SliceAllocatorTest, RandomRangesNeverOverlapAndAllComeBack) {
  constexpr std::uint64_t kSize = 1000 * kUnit;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    SliceAllocator allocator(kSize);
    std::map<std::uint64_t, std::uint64_t> taken;
    std::uint64_t taken_bytes = 0;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 5 < 3) {
        const std::uint64_t size = 1 + random() % (20 * kUnit);
        const std::uint64_t rounded = (size + kUnit - 1) / kUnit * kUnit;
        const std::optional<std::uint64_t> offset = allocator.Take(size);
        if (!offset.has_value()) continue;
        EXPECT_EQ(*offset % kUnit, 0u);
        EXPECT_LE(*offset + rounded, kSize);
        const auto next = taken.lower_bound(*offset);
        if (next != taken.end()) {
          EXPECT_GE(next->first, *offset + rounded);
        }
        if (next != taken.begin()) {
          const auto before = std::prev(next);
          EXPECT_LE(before->first + before->second, *offset);
        }
        taken[*offset] = rounded;
        taken_bytes += rounded;
      } else if (!taken.empty()) {
        const auto any =
            std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
        allocator.Free(any->first);
        taken_bytes -= any->second;
        taken.erase(any);
      }
      ASSERT_EQ(allocator.free_bytes(), kSize - taken_bytes);
    }
    for (const auto& [offset, size] : taken) allocator.Free(offset);
    EXPECT_EQ(allocator.Take(kSize), 0u);
  }
}

TEST(SliceAllocatorTest, IsSafeFromManyThreads) {
  constexpr std::uint64_t kSize = 200 * kUnit;
  SliceAllocator allocator(kSize);
  std::vector<int> owners(200, -1);  // a data race where two threads have the same unit
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<std::uint32_t>(t));
      for (int i = 0; i < 5000; ++i) {
        const std::uint64_t units = 1 + random() % 60;
        const std::optional<std::uint64_t> offset = allocator.Take(units * kUnit);
        if (!offset.has_value()) continue;
        for (std::uint64_t u = 0; u < units; ++u) owners[*offset / kUnit + u] = t;
        for (std::uint64_t u = 0; u < units; ++u) EXPECT_EQ(owners[*offset / kUnit + u], t);
        allocator.Free(*offset);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.Take(kSize), 0u);
}

}  // namespace
}  // namespace attend::client_internal

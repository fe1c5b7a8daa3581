#include "core/base/buffer_pool.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace attend {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

TEST(BufferPoolTest, GivesAlignedMemoryOfAtLeastTheSize) {
  BufferPool pool;
  for (std::int64_t log = 0; log < 26; ++log) {
    for (const std::int64_t off : {-65, -64, -63, -1, 0, 1}) {
      const std::int64_t bytes = std::max<std::int64_t>(0, (std::int64_t{1} << log) + off);
      const PooledBuffer buffer = pool.Acquire(bytes);
      ASSERT_TRUE(buffer.ok());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
      EXPECT_GE(buffer.capacity(), bytes);
      EXPECT_LE(buffer.capacity(), std::max<std::int64_t>(kKiB, (bytes + 64) * 5 / 4));
      std::memset(buffer.data(), 0xff, static_cast<std::size_t>(buffer.capacity()));
    }
  }
}

TEST(BufferPoolTest, GivesOutAgainWhatCameBackLast) {
  BufferPool pool;
  PooledBuffer first = pool.Acquire(3 * kMiB);
  PooledBuffer second = pool.Acquire(3 * kMiB);
  const std::byte* first_address = first.data();
  const std::byte* second_address = second.data();
  first.Reset();
  second.Reset();
  EXPECT_EQ(pool.Acquire(3 * kMiB - 1).data(), second_address);
  const PooledBuffer again = pool.Acquire(3 * kMiB);
  const PooledBuffer other = pool.Acquire(3 * kMiB);
  EXPECT_EQ(again.data(), second_address);
  EXPECT_EQ(other.data(), first_address);
}

TEST(BufferPoolTest, CountsWhatIsLentAndKept) {
  BufferPool pool;
  EXPECT_EQ(pool.lent_bytes(), 0);
  PooledBuffer buffer = pool.Acquire(100 * kKiB);
  const std::int64_t bytes = pool.lent_bytes();
  EXPECT_GE(bytes, 100 * kKiB);
  EXPECT_EQ(pool.kept_bytes(), 0);
  buffer.Reset();
  EXPECT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.capacity(), 0);
  EXPECT_EQ(pool.lent_bytes(), 0);
  EXPECT_EQ(pool.kept_bytes(), bytes);
  buffer = pool.Acquire(100 * kKiB);
  EXPECT_EQ(pool.lent_bytes(), bytes);
  EXPECT_EQ(pool.kept_bytes(), 0);
}

TEST(BufferPoolTest, LetsGoOfWhatHasBeenUnusedForLongest) {
  BufferPool pool({.max_kept_bytes = 3 * kMiB});
  std::vector<PooledBuffer> large;
  for (int i = 0; i < 3; ++i) large.push_back(pool.Acquire(kMiB - 64));
  std::vector<PooledBuffer> small;
  for (int i = 0; i < 4; ++i) small.push_back(pool.Acquire(kMiB / 2 - 64));
  large.clear();
  EXPECT_EQ(pool.kept_bytes(), 3 * kMiB);
  // The load has changed: what it needs now takes the place of what nobody asks for.
  small.clear();
  EXPECT_EQ(pool.kept_bytes(), 3 * kMiB);
  for (int i = 0; i < 4; ++i) small.push_back(pool.Acquire(kMiB / 2 - 64));
  EXPECT_EQ(pool.kept_bytes(), kMiB);  // all four were there
}

TEST(BufferPoolTest, KeepsNothingThatIsLargerThanTheBound) {
  BufferPool pool({.max_kept_bytes = kMiB});
  pool.Acquire(2 * kMiB).Reset();
  EXPECT_EQ(pool.kept_bytes(), 0);
  EXPECT_EQ(pool.lent_bytes(), 0);
}

TEST(BufferPoolTest, LendsNoMoreThanItMay) {
  BufferPool pool({.max_lent_bytes = 2 * kMiB});
  PooledBuffer first = pool.Acquire(kMiB);
  EXPECT_FALSE(pool.Acquire(kMiB).ok());
  EXPECT_TRUE(pool.Acquire(kMiB / 2).ok());
  first.Reset();
  EXPECT_TRUE(pool.Acquire(kMiB).ok());
}

TEST(BufferPoolTest, HasNoneOfASizeThatCannotBe) {
  BufferPool pool;
  EXPECT_FALSE(pool.Acquire(std::numeric_limits<std::int64_t>::max()).ok());
  EXPECT_FALSE(pool.Acquire(std::int64_t{1} << 40).ok());
  EXPECT_EQ(pool.lent_bytes(), 0);
}

TEST(BufferPoolTest, TakesBackWhatWasReleased) {
  BufferPool pool;
  PooledBuffer buffer = pool.Acquire(kMiB);
  std::byte* data = buffer.Release();
  EXPECT_FALSE(buffer.ok());
  EXPECT_GT(pool.lent_bytes(), 0);
  BufferPool::Return(data);
  EXPECT_EQ(pool.lent_bytes(), 0);
  EXPECT_EQ(pool.Acquire(kMiB).data(), data);
  BufferPool::Return(nullptr);
}

TEST(BufferPoolTest, BuffersOutliveIt) {
  std::optional<BufferPool> pool(std::in_place);
  PooledBuffer buffer = pool->Acquire(kMiB);
  std::byte* released = pool->Acquire(kMiB).Release();
  pool->Acquire(kMiB).Reset();
  pool.reset();
  std::memset(buffer.data(), 1, kMiB);
  std::memset(released, 1, kMiB);
  BufferPool::Return(released);
}

TEST(BufferPoolTest, MovesWithoutALoss) {
  BufferPool pool;
  PooledBuffer buffer = pool.Acquire(10);
  std::byte* data = buffer.data();
  PooledBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.data(), data);
  PooledBuffer other = pool.Acquire(10);
  other = std::move(moved);
  EXPECT_EQ(other.data(), data);
  EXPECT_EQ(pool.lent_bytes(), kKiB);
  EXPECT_EQ(pool.kept_bytes(), kKiB);
}

// Each thread writes its mark over all of its buffers and finds it there later.
TEST(BufferPoolTest, NeverLendsTheSameMemoryTwice) {
  constexpr int kThreads = 4;
  BufferPool pool({.max_kept_bytes = 600 * kKiB});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&pool, thread] {
      std::mt19937 random(static_cast<std::uint32_t>(thread));
      std::vector<std::pair<PooledBuffer, std::size_t>> held(8);
      for (int round = 0; round < 2000; ++round) {
        auto& [buffer, size] = held[random() % held.size()];
        for (std::size_t i = 0; i < size; i += 97) {
          ASSERT_EQ(buffer.data()[i], static_cast<std::byte>(thread));
        }
        size = random() % (100 * kKiB);
        buffer = pool.Acquire(static_cast<std::int64_t>(size));
        ASSERT_TRUE(buffer.ok());
        std::memset(buffer.data(), thread, size);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.lent_bytes(), 0);
  EXPECT_LE(pool.kept_bytes(), 600 * kKiB);
}

}  // namespace
}  // namespace attend

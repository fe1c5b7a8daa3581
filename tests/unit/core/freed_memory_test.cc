#include "core/base/freed_memory.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <vector>

namespace attend {
namespace {

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Takes as many pieces as a large message has, writes to all of them, and frees them.
void UseMessage() {
  constexpr std::size_t kPiece = std::size_t{300} << 10;
  std::vector<void*> pieces(20);
  for (void*& piece : pieces) {
    piece = std::malloc(kPiece);
    std::memset(piece, 1, kPiece);
  }
  for (void* piece : pieces) std::free(piece);
}

// The sanitizers have allocators of their own, which keep what is freed or not as they see fit.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
constexpr bool kOwnAllocator = true;
#else
constexpr bool kOwnAllocator = false;
#endif

TEST(FreedMemoryTest, StaysForTheNextMessageUntilItIsGivenBack) {
  KeepFreedMemory();
  UseMessage();
  const long before = PageFaults();
  for (int i = 0; i < 10; ++i) UseMessage();
  const long kept = PageFaults() - before;
  GiveBackFreedMemory();
  UseMessage();
  const long given_back = PageFaults() - before - kept;
  if (kOwnAllocator) return;
  EXPECT_LT(kept, 100);         // of 15,000 pages
  EXPECT_GT(given_back, 1000);  // of 1,500
}

}  // namespace
}  // namespace attend

#include "core/base/freed_memory.h"

#include <algorithm>
#include <cstdlib>  // which defines __GLIBC__
#include <thread>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace attend {

void KeepFreedMemory() {
#ifdef __GLIBC__
  // What is larger has a mapping of its own, which goes back when it is freed; no larger value is
  // taken.
  constexpr int kLargestInHeap = 32 << 20;
  constexpr int kKept = 256 << 20;  // at the end of each heap
  // Each heap keeps what its threads once needed at most; by default there are eight a processor.
  const int heaps = static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
  mallopt(M_ARENA_MAX, heaps);
  mallopt(M_MMAP_THRESHOLD, kLargestInHeap);
  mallopt(M_TRIM_THRESHOLD, kKept);
#endif
}

void GiveBackFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace attend

#include "tests/unit/server/rpc/failing_allocator.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace attend {

thread_local int allocations_left = -1;

}  // namespace attend

void* operator new(std::size_t size) {
  const bool fails = attend::allocations_left >= 0 && attend::allocations_left-- == 0;
  void* memory = fails ? nullptr : std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }

void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

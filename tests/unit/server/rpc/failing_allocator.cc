#include "tests/unit/server/rpc/failing_allocator.h"

#include <cstddef>
#include <cstdlib>
#include <new>

#include "core/base/tsan_handover.h"

namespace attend {

thread_local int allocations_left = -1;

}  // namespace attend

void* operator new(std::size_t size) {
  const bool fails = attend::allocations_left >= 0 && attend::allocations_left-- == 0;
  void* memory = fails ? nullptr : std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  attend::HandOver(memory);
  return memory;
}

// By itself this would be the sanitizers' own, in programs that have one.
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Of gRPC's own memory TSan would see that it comes and goes here, and not what is between.
void operator delete(void* memory) noexcept {
  attend::TakeOver(memory);
  std::free(memory);
}

void operator delete(void* memory, std::size_t /*size*/) noexcept { operator delete(memory); }

// Read by LeakSanitizer, in builds that have it. Protobuf loses a message that it has made where it
// gets no memory to keep it in a list.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:google::protobuf::Arena::\n"; }

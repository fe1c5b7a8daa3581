// Finds the library's own definition of a function that a program defines before it.
#ifndef ATTEND_DEPLOY_SANITIZERS_NEXT_H_
#define ATTEND_DEPLOY_SANITIZERS_NEXT_H_

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <type_traits>

namespace attend {

inline void* NextAddress(const void* own) {
  Dl_info info;
  if (dladdr(own, &info) == 0 || info.dli_sname == nullptr) std::abort();
  void* next = dlsym(RTLD_NEXT, info.dli_sname);
  if (next == nullptr) std::abort();
  return next;
}

// `own`: a function, or a method that is not virtual.
template <typename Function>
Function Next(Function own) {
  if constexpr (std::is_member_function_pointer_v<Function>) {
    // What such a pointer is made of in the C++ ABI of Linux.
    struct Parts {
      void* address;
      std::ptrdiff_t adjustment;
    };
    Parts parts = std::bit_cast<Parts>(own);
    parts.address = NextAddress(parts.address);
    return std::bit_cast<Function>(parts);
  } else {
    return reinterpret_cast<Function>(NextAddress(reinterpret_cast<const void*>(own)));
  }
}

}  // namespace attend

#endif  // ATTEND_DEPLOY_SANITIZERS_NEXT_H_

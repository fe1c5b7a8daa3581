// What libraries do between threads, told to ThreadSanitizer.
//
// Debian builds TBB's and gRPC's libraries without TSan, which therefore sees no order between a
// thread that hands something over and the one that gets it. Under TSan these two calls say it; in
// every other build they are nothing.
#ifndef ATTEND_CORE_BASE_TSAN_HANDOVER_H_
#define ATTEND_CORE_BASE_TSAN_HANDOVER_H_

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace attend {

// What this thread did so far comes before what others do after their next TakeOver of `what`, of
// which only the address counts.
inline void HandOver([[maybe_unused]] void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(what);
#endif
}

inline void TakeOver([[maybe_unused]] void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(what);
#endif
}

}  // namespace attend

#endif  // ATTEND_CORE_BASE_TSAN_HANDOVER_H_

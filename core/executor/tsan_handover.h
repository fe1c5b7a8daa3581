// What TBB does between threads, told to ThreadSanitizer.
//
// Debian builds TBB's library without TSan, which therefore sees no order between a thread that
// hands work over and the worker that does it. Under TSan these two calls say it; in every other
// build they are nothing.
#ifndef ATTEND_CORE_EXECUTOR_TSAN_HANDOVER_H_
#define ATTEND_CORE_EXECUTOR_TSAN_HANDOVER_H_

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace attend {

#if defined(__SANITIZE_THREAD__)
inline char tsan_handover;  // only its address counts
#endif

// What this thread did so far comes before what others do after their next ReceiveFromTbb.
inline void HandToTbb() {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(&tsan_handover);
#endif
}

inline void ReceiveFromTbb() {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(&tsan_handover);
#endif
}

}  // namespace attend

#endif  // ATTEND_CORE_EXECUTOR_TSAN_HANDOVER_H_

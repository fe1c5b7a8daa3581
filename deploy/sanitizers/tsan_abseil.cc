// Makes ThreadSanitizer see Abseil's mutex, notification and counter, so that what they guard is
// checked and not reported.
//
// Debian builds Abseil without TSan, so a lock taken there orders nothing in TSan's eyes, and all
// that is guarded by one looks like a race. The functions here stand before those of the library,
// in every program of a TSan build, for our calls and for those of gRPC and of Abseil itself: each
// calls the library's and tells TSan what it did. No other build contains this file.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "deploy/sanitizers/next.h"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto next = attend::Next(&Mutex::Lock);
  (this->*next)();
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static const auto next = attend::Next(&Mutex::Unlock);
  __tsan_release(this);
  (this->*next)();
}

bool Mutex::TryLock() {
  static const auto next = attend::Next(&Mutex::TryLock);
  const bool locked = (this->*next)();
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::ReaderLock() {
  static const auto next = attend::Next(&Mutex::ReaderLock);
  (this->*next)();
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static const auto next = attend::Next(&Mutex::ReaderUnlock);
  __tsan_release(this);
  (this->*next)();
}

// Of Await, AwaitWithTimeout and AwaitWithDeadline.
bool Mutex::AwaitCommon(const Condition& condition,
                        synchronization_internal::KernelTimeout timeout) {
  static const auto next = attend::Next(&Mutex::AwaitCommon);
  __tsan_release(this);
  const bool held = (this->*next)(condition, timeout);
  __tsan_acquire(this);
  return held;
}

// Of Wait, WaitWithTimeout and WaitWithDeadline.
bool CondVar::WaitCommon(Mutex* mutex, synchronization_internal::KernelTimeout timeout) {
  static const auto next = attend::Next(&CondVar::WaitCommon);
  __tsan_release(mutex);
  const bool timed_out = (this->*next)(mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

// Whoever unlocks a mutex evaluates the conditions of those that wait for it, still holding it but
// after Unlock above has told TSan of its release.
bool Condition::Eval() const {
  static const auto next = attend::Next(&Condition::Eval);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  const bool holds = (this->*next)();
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  return holds;
}

// A notification that has been given is seen without its mutex.
void Notification::Notify() {
  static const auto next = attend::Next(&Notification::Notify);
  __tsan_release(this);
  (this->*next)();
}

void Notification::WaitForNotification() const {
  static const auto next = attend::Next(&Notification::WaitForNotification);
  (this->*next)();
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const auto next = attend::Next(&Notification::WaitForNotificationWithTimeout);
  const bool notified = (this->*next)(timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

// A counter that has come to zero is seen without its mutex.
bool BlockingCounter::DecrementCount() {
  static const auto next = attend::Next(&BlockingCounter::DecrementCount);
  __tsan_release(this);
  return (this->*next)();
}

void BlockingCounter::Wait() {
  static const auto next = attend::Next(&BlockingCounter::Wait);
  (this->*next)();
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl

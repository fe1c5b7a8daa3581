// A clock that stands still until a test moves it.
#ifndef ATTEND_TESTS_UNIT_SERVER_SCHEDULE_FAKE_CLOCK_H_
#define ATTEND_TESTS_UNIT_SERVER_SCHEDULE_FAKE_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/schedule/clock.h"

namespace attend {

class FakeClock final : public Clock {
 public:
  // Without a lock: Abseil evaluates conditions, which ask for the time, where none may be taken.
  absl::Time Now() const override { return absl::FromUnixNanos(now_unix_ns_); }

  bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition,
                  absl::Time deadline) override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    {
      absl::MutexLock lock(&mutex_);
      waiting_.push_back(&mutex);
    }
    const auto done = [this, &condition, deadline] {
      return condition.Eval() || Now() >= deadline;
    };
    mutex.Await(absl::Condition(&done));
    absl::MutexLock lock(&mutex_);
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &mutex));
    return condition.Eval();
  }

  // Moves the time on, and wakes those who wait for it.
  void Advance(absl::Duration duration) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::vector<absl::Mutex*> waiting;
    {
      absl::MutexLock lock(&mutex_);
      now_unix_ns_ += absl::ToInt64Nanoseconds(duration);
      waiting = waiting_;
    }
    // Whoever waits looks at the time again when its mutex is released.
    for (absl::Mutex* mutex : waiting) {
      mutex->Lock();
      mutex->Unlock();
    }
  }

 private:
  std::atomic<std::int64_t> now_unix_ns_{0};
  absl::Mutex mutex_;
  std::vector<absl::Mutex*> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend

#endif  // ATTEND_TESTS_UNIT_SERVER_SCHEDULE_FAKE_CLOCK_H_

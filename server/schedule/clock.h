// Time, passed in: the scheduler waits on a Clock, so that tests move time instead of sleeping.
#ifndef ATTEND_SERVER_SCHEDULE_CLOCK_H_
#define ATTEND_SERVER_SCHEDULE_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace attend {

// Points in time are absl::Time for its saturating arithmetic, but of a clock of their own that
// never jumps: compare them with each other only, never with the time of day.
// Thread-safety: safe from any thread.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual absl::Time Now() const = 0;

  // Waits until `condition` holds or it is `deadline`, and returns whether `condition` holds.
  // `mutex` is held by the caller, and is released while waiting.
  virtual bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;
};

// The machine's monotonic clock.
class MonotonicClock final : public Clock {
 public:
  absl::Time Now() const override;
  bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_CLOCK_H_

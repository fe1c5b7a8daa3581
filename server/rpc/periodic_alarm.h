// Something that is done again and again, on gRPC's timer.
#ifndef ATTEND_SERVER_RPC_PERIODIC_ALARM_H_
#define ATTEND_SERVER_RPC_PERIODIC_ALARM_H_

#include <array>
#include <cstddef>
#include <functional>
#include <grpcpp/alarm.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace attend {

// Has no thread of its own: gRPC has one that waits for its timers, and others for what they start.
// Thread-safety: `run` is called from a thread of gRPC's, and never twice at once.
class PeriodicAlarm {
 public:
  // Calls `run`, which must not block nor throw, first after a `period`, and again a period after
  // it has returned. `period` must be positive.
  PeriodicAlarm(absl::Duration period, std::function<void()> run);
  // Waits for a call that goes on; none follows. Not to be called by `run`.
  ~PeriodicAlarm();
  PeriodicAlarm(const PeriodicAlarm&) = delete;
  PeriodicAlarm& operator=(const PeriodicAlarm&) = delete;

 private:
  void Set() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ring() ABSL_LOCKS_EXCLUDED(mutex_);

  const absl::Duration period_;
  const std::function<void()> run_;
  absl::Mutex mutex_;
  // They take turns, since gRPC still uses the one that rings. Made beforehand: there might be no
  // memory for another one, and nobody to catch what a thread of gRPC's throws.
  std::array<grpc::Alarm, 2> alarms_ ABSL_GUARDED_BY(mutex_);
  std::size_t set_ ABSL_GUARDED_BY(mutex_) = 0;  // the one that was set last
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // it will not ring any more
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_PERIODIC_ALARM_H_

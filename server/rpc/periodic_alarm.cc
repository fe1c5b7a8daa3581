#include "server/rpc/periodic_alarm.h"

#include <grpc/support/time.h>
#include <utility>

namespace attend {

PeriodicAlarm::PeriodicAlarm(absl::Duration period, std::function<void()> run)
    : period_(period), run_(std::move(run)) {
  const absl::MutexLock lock(&mutex_);
  Set();
}

PeriodicAlarm::~PeriodicAlarm() {
  const absl::MutexLock lock(&mutex_);
  closed_ = true;
  // An alarm that is cancelled rings, once and at once.
  alarms_[set_].Cancel();
  mutex_.Await(absl::Condition(&ended_));
}

void PeriodicAlarm::Set() {
  set_ = 1 - set_;
  const gpr_timespec period = gpr_time_from_nanos(absl::ToInt64Nanoseconds(period_), GPR_TIMESPAN);
  alarms_[set_].Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), period), [this](bool) { Ring(); });
}

void PeriodicAlarm::Ring() {
  {
    const absl::MutexLock lock(&mutex_);
    ended_ = closed_;
    if (closed_) return;
  }
  run_();
  const absl::MutexLock lock(&mutex_);
  if (closed_) {
    ended_ = true;
  } else {
    Set();
  }
}

}  // namespace attend

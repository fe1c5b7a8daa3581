#include "server/schedule/clock.h"

#include <chrono>

namespace attend {

absl::Time MonotonicClock::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

bool MonotonicClock::AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition,
                                absl::Time deadline) {
  return mutex.AwaitWithTimeout(condition, deadline - Now());
}

}  // namespace attend

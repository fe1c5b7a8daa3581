// How busy the server has been of late.
#ifndef ATTEND_SERVER_OBSERVE_RECENT_ACTIVITY_H_
#define ATTEND_SERVER_OBSERVE_RECENT_ACTIVITY_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace attend {

// What has been counted since the start.
struct ActivityTotals {
  double requests = 0;  // answered, whatever the code
  double ok = 0;
  double tokens = 0;
  double flops = 0;
  double received_bytes = 0;
  double sent_bytes = 0;
  // Requests that took at most so many seconds, by bounds that rise; the last is infinite.
  std::vector<std::pair<double, double>> within_seconds;
};

// Rates and latencies over a stretch of time.
struct Activity {
  double seconds = 0;  // the stretch's length
  double requests_per_second = 0;
  double ok_per_second = 0;
  double tokens_per_second = 0;
  double flops_per_second = 0;
  double received_bytes_per_second = 0;
  double sent_bytes_per_second = 0;
  // Of requests that ended in it, between the bounds they were counted by; 0 if there was none.
  double p50_seconds = 0;
  double p90_seconds = 0;
  double p99_seconds = 0;
};

// Compares totals with those that were seen up to a minute ago, at the times when somebody looked:
// who looks often sees the last minute, who looks for the first time all since the start.
// Thread-safety: safe from any thread.
class RecentActivity {
 public:
  explicit RecentActivity(absl::Time start);

  // What happened since the oldest look that is at most a minute ago, or else the last one.
  Activity Look(absl::Time now, ActivityTotals totals);

 private:
  absl::Mutex mutex_;
  std::deque<std::pair<absl::Time, ActivityTotals>> seen_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend

#endif  // ATTEND_SERVER_OBSERVE_RECENT_ACTIVITY_H_

// Keeps a source of log lines that callers can trigger from flooding the log.
#ifndef ATTEND_SERVER_OBSERVE_LINE_LIMIT_H_
#define ATTEND_SERVER_OBSERVE_LINE_LIMIT_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace attend {

// Lets at most `lines` through in each window of time. Thread-safety: safe from any thread.
class LineLimit {
 public:
  // `lines`: at least 1.
  LineLimit(int lines, absl::Duration window) : lines_(lines), window_(window) {}

  // Nothing: leave this line out. Otherwise write it; the number says how many were left out since
  // the last one that was written.
  std::optional<std::int64_t> Take(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (now >= window_end_) {
      window_end_ = now + window_;
      taken_ = 0;
    }
    if (taken_ >= lines_) {
      ++left_out_;
      return std::nullopt;
    }
    ++taken_;
    const std::int64_t left_out = left_out_;
    left_out_ = 0;
    return left_out;
  }

 private:
  const int lines_;
  const absl::Duration window_;
  absl::Mutex mutex_;
  absl::Time window_end_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attend

#endif  // ATTEND_SERVER_OBSERVE_LINE_LIMIT_H_

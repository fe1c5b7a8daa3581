// The streams that are open, so that a drain finds them.
#ifndef ATTEND_SERVER_RPC_OPEN_STREAMS_H_
#define ATTEND_SERVER_RPC_OPEN_STREAMS_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace attend {

class AttendStream;

// Thread-safety: safe from any thread.
class OpenStreams {
 public:
  // True if Drain has begun: the stream has to be drained by whoever adds it.
  bool Add(AttendStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(AttendStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);

  // Drains every stream that is open, and lets Add say so from now on.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  // Abseil's sets do not survive it when memory runs out while they grow.
  std::set<AttendStream*> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_OPEN_STREAMS_H_

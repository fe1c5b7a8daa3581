// SIGTERM and SIGINT: the first asks the server to drain, the second to hurry.
#ifndef ATTEND_SERVER_PROCESS_STOP_SIGNALS_H_
#define ATTEND_SERVER_PROCESS_STOP_SIGNALS_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "server/observe/logging.h"

namespace attend {

// Receives the signals on a thread of its own, which also is the watchdog: it ends the process with
// exit code 1 where requests have no answer by then, and with 0 where they have. At most one
// exists at a time.
// Thread-safety: safe from any thread.
class StopSignals {
 public:
  // Blocks the signals in the calling thread and in those that it starts later. To be called before
  // any thread is started.
  static void Block();

  // `drain_timeout`: time that the drain may take. The watchdog gives it 1.5 s more, and 1 s from
  // the second signal on.
  StopSignals(absl::Duration drain_timeout, Logger logger);
  // Also stops the watchdog.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Waits for the first signal. Returns when it came, on MonotonicClock.
  absl::Time WaitForFirst();

  // `hurry` is called once the second signal has come, perhaps at once and inside this call.
  void OnSecond(std::function<void()> hurry) ABSL_LOCKS_EXCLUDED(mutex_);

  // Every request has its answer: nothing is owed to any caller. What is left, that gRPC delivers
  // the answers and that the process is torn down, gets 1.5 s more. (To a caller who reads nothing
  // gRPC 1.51 can deliver none, nor give its call up before the caller takes what is on the wire.)
  void Answered() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run();
  void Receive() ABSL_LOCKS_EXCLUDED(mutex_);
  [[noreturn]] void EndProcess() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Time watchdog_deadline() const ABSL_LOCKS_EXCLUDED(mutex_);

  const absl::Duration drain_timeout_;
  const Logger logger_;
  const int signal_fd_;
  const int stop_fd_;  // an eventfd, written by the destructor
  const int wake_fd_;  // an eventfd, written where the deadline has changed
  absl::Notification first_came_;

  mutable absl::Mutex mutex_;
  int received_ ABSL_GUARDED_BY(mutex_) = 0;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time first_time_ ABSL_GUARDED_BY(mutex_);
  absl::Time watchdog_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::function<void()> hurry_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_PROCESS_STOP_SIGNALS_H_

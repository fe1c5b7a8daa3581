// Things to do at a time.
#ifndef ATTEND_CLIENT_CPP_TIMERS_H_
#define ATTEND_CLIENT_CPP_TIMERS_H_

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace attend::client_internal {

// Runs them one after the other on a thread of its own. Thread-safety: safe from any thread.
class Timers {
 public:
  using Clock = std::chrono::steady_clock;

  // Names something scheduled. The default names nothing.
  struct Id {
    Clock::time_point time;
    std::uint64_t number = 0;
    auto operator<=>(const Id&) const = default;
  };

  Timers();
  // Waits for what is running; what has not begun never does. Not to be called by a timer.
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  // `run` must not throw, and not block for long.
  Id Schedule(Clock::time_point time, std::function<void()> run);

  // Does nothing for what has run or is running.
  void Cancel(const Id& id);

 private:
  void Run();
  // Until something is due or the object goes.
  void WaitUntilDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  absl::CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Id, std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_TIMERS_H_

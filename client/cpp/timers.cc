#include "client/cpp/timers.h"

#include <pthread.h>
#include <utility>

#include "absl/time/time.h"

namespace attend::client_internal {

Timers::Timers() : thread_([this] { Run(); }) {}

Timers::~Timers() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    changed_.Signal();
  }
  thread_.join();
}

Timers::Id Timers::Schedule(Clock::time_point time, std::function<void()> run) {
  absl::MutexLock lock(&mutex_);
  const Id id{time, ++last_number_};
  const auto place = waiting_.emplace(id, std::move(run)).first;
  if (place == waiting_.begin()) changed_.Signal();
  return id;
}

void Timers::Cancel(const Id& id) {
  std::function<void()> cancelled;  // goes after the lock, with all that it holds
  absl::MutexLock lock(&mutex_);
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  cancelled = std::move(found->second);
  waiting_.erase(found);
}

void Timers::WaitUntilDue() {
  while (!closed_) {
    if (waiting_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const Clock::duration left = waiting_.begin()->first.time - Clock::now();
    if (left <= Clock::duration::zero()) return;
    changed_.WaitWithTimeout(&mutex_, absl::FromChrono(left));
  }
}

void Timers::Run() {
  pthread_setname_np(pthread_self(), "attend-timers");
  mutex_.Lock();
  for (WaitUntilDue(); !closed_; WaitUntilDue()) {
    std::function<void()> run = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    mutex_.Unlock();
    run();
    run = nullptr;  // what it holds may end in here
    mutex_.Lock();
  }
  mutex_.Unlock();
}

}  // namespace attend::client_internal

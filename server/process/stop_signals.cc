#include "server/process/stop_signals.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <utility>

#include "server/schedule/clock.h"

namespace attend {
namespace {

constexpr absl::Duration kWatchdogMargin = absl::Milliseconds(1500);
constexpr absl::Duration kHurriedTimeout = absl::Seconds(1);

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

int OpenSignalFd() {
  const sigset_t set = StopSet();
  return signalfd(-1, &set, SFD_CLOEXEC);
}

// Milliseconds for poll: -1 for ever.
int PollTimeout(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return -1;
  const absl::Duration left = deadline - MonotonicClock().Now();
  return static_cast<int>(std::clamp<std::int64_t>(absl::ToInt64Milliseconds(left), 0, 1 << 30));
}

}  // namespace

void StopSignals::Block() {
  const sigset_t set = StopSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // Writing to a caller that went away is an error of that call, not the end of the process.
  signal(SIGPIPE, SIG_IGN);
}

StopSignals::StopSignals(absl::Duration drain_timeout, Logger logger)
    : drain_timeout_(drain_timeout),
      logger_(std::move(logger)),
      signal_fd_(OpenSignalFd()),
      stop_fd_(eventfd(0, EFD_CLOEXEC)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

StopSignals::~StopSignals() {
  const std::uint64_t one = 1;
  while (write(stop_fd_, &one, sizeof(one)) != sizeof(one)) {
  }
  thread_.join();
  close(wake_fd_);
  close(stop_fd_);
  close(signal_fd_);
}

absl::Time StopSignals::WaitForFirst() {
  first_came_.WaitForNotification();
  absl::MutexLock lock(&mutex_);
  return first_time_;
}

void StopSignals::OnSecond(std::function<void()> hurry) {
  absl::MutexLock lock(&mutex_);
  if (received_ >= 2) {
    hurry();
  } else {
    hurry_ = std::move(hurry);
  }
}

void StopSignals::Answered() {
  absl::MutexLock lock(&mutex_);
  answered_ = true;
  watchdog_deadline_ = std::min(watchdog_deadline_, MonotonicClock().Now() + kWatchdogMargin);
  // The thread that waits for the deadline has to see the new one.
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof(one));
}

absl::Time StopSignals::watchdog_deadline() const {
  absl::MutexLock lock(&mutex_);
  return watchdog_deadline_;
}

void StopSignals::Run() {
  pthread_setname_np(pthread_self(), "attend-signals");
  std::array<pollfd, 3> fds = {pollfd{signal_fd_, POLLIN, 0}, pollfd{stop_fd_, POLLIN, 0},
                               pollfd{wake_fd_, POLLIN, 0}};
  for (;;) {
    poll(fds.data(), fds.size(), PollTimeout(watchdog_deadline()));
    if ((fds[1].revents & POLLIN) != 0) return;
    if ((fds[0].revents & POLLIN) != 0) Receive();
    std::uint64_t wakes = 0;
    if ((fds[2].revents & POLLIN) != 0 && read(wake_fd_, &wakes, sizeof(wakes)) < 0) continue;
    if (MonotonicClock().Now() >= watchdog_deadline()) EndProcess();
  }
}

void StopSignals::EndProcess() {
  {
    absl::MutexLock lock(&mutex_);
    if (answered_) {
      logger_->warn(
          "every request is answered, but not every answer was read; ending all the same");
      std::_Exit(EXIT_SUCCESS);
    }
  }
  logger_->error("the drain hangs; giving up");
  std::_Exit(EXIT_FAILURE);
}

void StopSignals::Receive() {
  signalfd_siginfo info{};
  if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) return;
  const char* const name = info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT";
  absl::MutexLock lock(&mutex_);
  if (++received_ == 1) {
    logger_->info("{} received: draining", name);
    first_time_ = MonotonicClock().Now();
    watchdog_deadline_ = first_time_ + drain_timeout_ + kWatchdogMargin;
    first_came_.Notify();
  } else if (received_ == 2) {
    logger_->warn("{} received again: failing what still runs", name);
    watchdog_deadline_ = std::min(watchdog_deadline_, MonotonicClock().Now() + kHurriedTimeout);
    if (hurry_) hurry_();
  }
}

}  // namespace attend

#include "tests/support/wait.h"

#include <thread>

namespace attend::testing {

bool WaitUntil(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kPollInterval{2};
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return condition();
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

}  // namespace attend::testing

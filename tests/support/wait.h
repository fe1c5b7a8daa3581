// Waiting on conditions, in tests that watch another process.
#ifndef ATTEND_TESTS_SUPPORT_WAIT_H_
#define ATTEND_TESTS_SUPPORT_WAIT_H_

#include <chrono>
#include <functional>

namespace attend::testing {

// What no test should ever reach; sanitizers on a loaded machine included.
inline constexpr std::chrono::seconds kPatience{60};

// Asks `condition` again and again until it is true (returns true) or `limit` has passed (false).
bool WaitUntil(const std::function<bool()>& condition, std::chrono::milliseconds limit = kPatience);

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_WAIT_H_

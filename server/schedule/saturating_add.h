// Sums of sizes that callers choose.
#ifndef ATTEND_SERVER_SCHEDULE_SATURATING_ADD_H_
#define ATTEND_SERVER_SCHEDULE_SATURATING_ADD_H_

#include <cstdint>
#include <limits>

namespace attend {

// Of numbers that are at least 0. Saturates: huge requests are refused by size, and must not seem
// small.
inline std::int64_t SaturatingAdd(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_SATURATING_ADD_H_

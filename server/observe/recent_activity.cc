#include "server/observe/recent_activity.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace attend {

namespace {

constexpr absl::Duration kStretch = absl::Minutes(1);

// Looks closer to each other than this are not remembered apart.
constexpr absl::Duration kApart = absl::Seconds(1);

// By linear interpolation within the bucket; the last one has no end, and counts as its beginning.
double Quantile(double q, const ActivityTotals& before, const ActivityTotals& after) {
  const auto count_at = [&](std::size_t i) {
    const double earlier = i < before.within_seconds.size() ? before.within_seconds[i].second : 0;
    return after.within_seconds[i].second - earlier;
  };
  const std::size_t buckets = after.within_seconds.size();
  if (buckets == 0 || count_at(buckets - 1) <= 0) return 0;
  const double rank = q * count_at(buckets - 1);
  double lower = 0;
  double below = 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    const double upper = after.within_seconds[i].first;
    const double within = count_at(i);
    if (within >= rank && within > below) {
      return std::isinf(upper) ? lower
                               : lower + (upper - lower) * (rank - below) / (within - below);
    }
    below = within;
    lower = upper;
  }
  return lower;
}

Activity Between(const ActivityTotals& before, const ActivityTotals& after, double seconds) {
  const auto rate = [&](double ActivityTotals::*total) {
    return (after.*total - before.*total) / seconds;
  };
  return {.seconds = seconds,
          .requests_per_second = rate(&ActivityTotals::requests),
          .ok_per_second = rate(&ActivityTotals::ok),
          .tokens_per_second = rate(&ActivityTotals::tokens),
          .flops_per_second = rate(&ActivityTotals::flops),
          .received_bytes_per_second = rate(&ActivityTotals::received_bytes),
          .sent_bytes_per_second = rate(&ActivityTotals::sent_bytes),
          .p50_seconds = Quantile(0.5, before, after),
          .p90_seconds = Quantile(0.9, before, after),
          .p99_seconds = Quantile(0.99, before, after)};
}

}  // namespace

RecentActivity::RecentActivity(absl::Time start) {
  const absl::MutexLock lock(&mutex_);
  seen_.emplace_back(start, ActivityTotals());
}

Activity RecentActivity::Look(absl::Time now, ActivityTotals totals) {
  const absl::MutexLock lock(&mutex_);
  while (seen_.size() > 1 && now - seen_[0].first > kStretch) seen_.pop_front();
  const double seconds = absl::ToDoubleSeconds(now - seen_.front().first);
  const Activity activity =
      seconds > 0 ? Between(seen_.front().second, totals, seconds) : Activity();
  if (now - seen_.back().first >= kApart) seen_.emplace_back(now, std::move(totals));
  return activity;
}

}  // namespace attend

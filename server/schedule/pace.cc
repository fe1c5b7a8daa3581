#include "server/schedule/pace.h"

namespace attend {

void Pace::Record(double cost, absl::Time now) {
  // Follows what changes within some ten calls.
  constexpr double kKept = 0.9;
  if (cost <= 0) return;  // the time counts with what is done next
  cost_ = kKept * cost_ + cost;
  seconds_ = kKept * seconds_ + absl::ToDoubleSeconds(now - since_);
  since_ = now;
}

absl::Duration Pace::TimeFor(double cost) const {
  return cost_ > 0 ? absl::Seconds(seconds_ / cost_ * cost) : absl::ZeroDuration();
}

}  // namespace attend

// How fast tasks are computed.
#ifndef ATTEND_SERVER_SCHEDULE_PACE_H_
#define ATTEND_SERVER_SCHEDULE_PACE_H_

#include "absl/time/time.h"

namespace attend {

// What a unit of cost has taken lately while any task ran, however many did: with all that shares
// the workers. Thread-safety: none.
class Pace {
 public:
  // Tasks run from `now` on, where none did.
  void Begin(absl::Time now) { since_ = now; }

  // They have done `cost` since Begin, or since the last call.
  void Record(double cost, absl::Time now);

  // 0 where nothing is known yet.
  absl::Duration TimeFor(double cost) const;

 private:
  absl::Time since_;
  double cost_ = 0;     // of the last calls, the older the less
  double seconds_ = 0;  // that it took
};

}  // namespace attend

#endif  // ATTEND_SERVER_SCHEDULE_PACE_H_

#include "client/load/pacing.h"

namespace attend::load {

Step ClosedLoop::Next(std::chrono::nanoseconds now, std::int64_t in_flight) {
  if (now >= end_) return {Step::Kind::kEnd, end_};
  if (in_flight < calls_) return {Step::Kind::kSend, now};
  return {Step::Kind::kWait, end_};
}

Step OpenLoop::Next(std::chrono::nanoseconds now, std::int64_t in_flight) {
  if (!next_.has_value()) next_ = arrivals_.Next();
  const std::chrono::nanoseconds time = *next_;
  if (time >= end_) return {Step::Kind::kEnd, end_};
  if (time > now) return {Step::Kind::kWait, time};
  next_.reset();
  return {in_flight < max_in_flight_ ? Step::Kind::kSend : Step::Kind::kDrop, time};
}

}  // namespace attend::load

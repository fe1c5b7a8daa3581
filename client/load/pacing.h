// What a load generator does next: the rules of the closed and of the open loop, without a clock.
#ifndef ATTEND_CLIENT_LOAD_PACING_H_
#define ATTEND_CLIENT_LOAD_PACING_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "client/load/arrivals.h"

namespace attend::load {

// Times are counted from the start of the run.
struct Step {
  enum class Kind : std::uint8_t {
    kSend,  // start a call; `time` is when it was meant to start, from which its latency counts
    kDrop,  // too many are in flight: give this call up unsent; `time` as above
    kWait,  // nothing to do until `time`, or until a call is answered
    kEnd,   // no call starts any more
  };
  Kind kind = Kind::kEnd;
  std::chrono::nanoseconds time{};
};

class Pacing {
 public:
  virtual ~Pacing() = default;
  // The next step at `now` with so many calls in flight. `now` never goes back.
  virtual Step Next(std::chrono::nanoseconds now, std::int64_t in_flight) = 0;
};

// Keeps so many calls in flight until `end`: each is meant to start when there is room for it.
class ClosedLoop : public Pacing {
 public:
  ClosedLoop(std::int64_t calls, std::chrono::nanoseconds end) : calls_(calls), end_(end) {}
  Step Next(std::chrono::nanoseconds now, std::int64_t in_flight) override;

 private:
  std::int64_t calls_;
  std::chrono::nanoseconds end_;
};

// Starts calls at their times, whatever became of those before. What could not start in time (the
// generator was late) starts as soon as possible; its latency counts from when it was meant to.
class OpenLoop : public Pacing {
 public:
  OpenLoop(Arrivals arrivals, std::int64_t max_in_flight, std::chrono::nanoseconds end)
      : arrivals_(arrivals), max_in_flight_(max_in_flight), end_(end) {}
  Step Next(std::chrono::nanoseconds now, std::int64_t in_flight) override;

 private:
  Arrivals arrivals_;
  std::int64_t max_in_flight_;
  std::chrono::nanoseconds end_;
  std::optional<std::chrono::nanoseconds> next_;
};

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_PACING_H_

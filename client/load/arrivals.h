// When an open loop means to start its calls.
#ifndef ATTEND_CLIENT_LOAD_ARRIVALS_H_
#define ATTEND_CLIENT_LOAD_ARRIVALS_H_

#include <chrono>
#include <cstdint>
#include <random>

namespace attend::load {

enum class ArrivalKind : std::uint8_t {
  kPoisson,   // gaps are exponentially distributed: callers who know nothing of each other
  kConstant,  // gaps are equal
};

// An endless sequence of times, counted from the start of the run. It depends on nothing but its
// arguments: neither on answers nor on a clock, so a stall does not thin it out.
class Arrivals {
 public:
  // `rate`: calls a second, above 0.
  Arrivals(ArrivalKind kind, double rate, std::uint64_t seed);

  // Not earlier than the one before. A constant rate does not drift: the n-th is n / rate.
  std::chrono::nanoseconds Next();

 private:
  ArrivalKind kind_;
  double rate_;
  std::mt19937_64 random_;
  std::int64_t number_ = 0;  // of those given out
  double seconds_ = 0;       // of the last one, if they are random
};

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_ARRIVALS_H_

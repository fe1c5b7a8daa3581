#include "client/load/arrivals.h"

#include <cmath>

#include "absl/random/distributions.h"

namespace attend::load {

namespace {

constexpr double kNanoseconds = 1e9;

}  // namespace

Arrivals::Arrivals(ArrivalKind kind, double rate, std::uint64_t seed)
    : kind_(kind), rate_(rate), random_(seed) {}

std::chrono::nanoseconds Arrivals::Next() {
  if (kind_ == ArrivalKind::kConstant) {
    seconds_ = static_cast<double>(number_) / rate_;
  } else {
    seconds_ += absl::Exponential<double>(random_, rate_);
  }
  ++number_;
  return std::chrono::nanoseconds(std::llround(seconds_ * kNanoseconds));
}

}  // namespace attend::load

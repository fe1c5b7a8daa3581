#include "client/load/samples.h"

#include <algorithm>
#include <cmath>

#include "absl/random/distributions.h"

namespace attend::load {

namespace {

double NearestRank(const std::vector<float>& sorted, double quantile) {
  const double rank = std::ceil(quantile * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

}  // namespace

void Samples::Add(double value) {
  max_ = count_ == 0 ? value : std::max(max_, value);
  ++count_;
  sum_ += value;
  if (kept_.size() < bound_) {
    kept_.push_back(static_cast<float>(value));
    return;
  }
  // Each of the `count_` numbers so far stays with the same probability.
  const auto place = absl::Uniform<std::uint64_t>(random_, 0, static_cast<std::uint64_t>(count_));
  if (place < bound_) kept_[place] = static_cast<float>(value);
}

Distribution Samples::Summarize() const {
  if (kept_.empty()) return {};
  std::vector<float> sorted = kept_;
  std::sort(sorted.begin(), sorted.end());
  return {.count = count_,
          .mean = sum_ / static_cast<double>(count_),
          .p50 = NearestRank(sorted, 0.5),
          .p90 = NearestRank(sorted, 0.9),
          .p99 = NearestRank(sorted, 0.99),
          .p999 = NearestRank(sorted, 0.999),
          .max = max_};
}

std::int64_t Samples::CountAbove(double threshold) const {
  if (kept_.empty()) return 0;
  const auto above = std::count_if(kept_.begin(), kept_.end(),
                                   [threshold](float value) { return value > threshold; });
  const double share = static_cast<double>(above) / static_cast<double>(kept_.size());
  return std::llround(share * static_cast<double>(count_));
}

}  // namespace attend::load

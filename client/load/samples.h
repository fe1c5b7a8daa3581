// Numbers of which quantiles are wanted: kept as they are, and sorted in the end.
#ifndef ATTEND_CLIENT_LOAD_SAMPLES_H_
#define ATTEND_CLIENT_LOAD_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace attend::load {

// What is told of many numbers. All 0 of none.
struct Distribution {
  std::int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
};

// Exact up to a bound; past it a uniform random sample of that size stands for all, while count,
// mean and max stay exact. Values are rounded to float32. Thread-safety: for one thread.
class Samples {
 public:
  static constexpr std::size_t kDefaultBound = std::size_t{1} << 22;  // 16 MiB

  explicit Samples(std::size_t bound = kDefaultBound) : bound_(bound) {}

  void Add(double value);

  std::int64_t count() const { return count_; }

  // Quantiles by nearest rank: the smallest number that so large a share of all does not exceed.
  Distribution Summarize() const;

  // How many are larger; scaled up from what is kept where that is a sample.
  std::int64_t CountAbove(double threshold) const;

 private:
  std::size_t bound_;
  std::vector<float> kept_;
  std::int64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_SAMPLES_H_

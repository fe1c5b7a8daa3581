#include "tests/bench/serve/closed_loops.h"

#include <algorithm>
#include <cstddef>

namespace attend::bench {

std::vector<std::vector<double>> MeasureInTurns(std::span<const Subject> subjects,
                                                const TurnOptions& options) {
  std::vector<Cell> best(subjects.size());
  std::vector<double> highest(subjects.size(), -1);
  for (const Cell& cell : options.grid) {
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      const double rate = subjects[i](cell, options.explore);
      if (rate <= highest[i]) continue;
      highest[i] = rate;
      best[i] = cell;
    }
  }
  std::vector<std::vector<double>> rates(subjects.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t turn = 0; turn < subjects.size(); ++turn) {
      const std::size_t i = round % 2 == 0 ? turn : subjects.size() - 1 - turn;
      rates[i].push_back(subjects[i](best[i], options.measure));
    }
  }
  return rates;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double MedianRatio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Median(std::move(ratios));
}

}  // namespace attend::bench

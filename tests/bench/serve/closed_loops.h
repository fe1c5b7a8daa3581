// Rates of several subjects, taken in turns, so that a change of the machine's speed meets all.
#ifndef ATTEND_TESTS_BENCH_SERVE_CLOSED_LOOPS_H_
#define ATTEND_TESTS_BENCH_SERVE_CLOSED_LOOPS_H_

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/bench/serve/raw_client.h"

namespace attend::bench {

// Something whose rate is measured, such as a server.
using Subject = std::function<double(const Cell& cell, std::chrono::nanoseconds duration)>;

struct TurnOptions {
  std::span<const Cell> grid;
  std::chrono::nanoseconds explore;  // of each cell, for each subject
  std::chrono::nanoseconds measure;  // of each round, for each subject
  int rounds = 5;
};

// Rates of each subject, by round: [subject][round]. First every cell of the grid is tried for each
// subject; then each is measured in the cell that was best for it. Every second round goes
// backwards.
std::vector<std::vector<double>> MeasureInTurns(std::span<const Subject> subjects,
                                                const TurnOptions& options);

double Median(std::vector<double> values);

// The median over rounds of a / b.
double MedianRatio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_SERVE_CLOSED_LOOPS_H_

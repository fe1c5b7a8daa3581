// The result of a benchmark program: a table, and a JSON list of name, value, target and unit.
#ifndef ATTEND_TESTS_BENCH_REPORT_H_
#define ATTEND_TESTS_BENCH_REPORT_H_

#include <benchmark/benchmark.h>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attend::bench {

struct Figure {
  std::string name;
  double value = 0;
  std::optional<double> target;
  std::string unit;
  bool at_most = false;  // what the target is: a ceiling, rather than a floor

  // NaN stands for what could not be measured here.
  bool measured() const { return !std::isnan(value); }
  bool MeetsTarget() const { return !target || (at_most ? value <= *target : value >= *target); }
};

// Keeps the best rate of each benchmark over its repetitions. On a machine that others share, the
// best of many interleaved repetitions is what repeats; other figures measure the neighbours.
class BestRates : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override;

  // Best "rate" counter of the benchmark of this name; 0 if it did not run.
  double rate(const std::string& name) const;

 private:
  std::map<std::string, double> rates_;
};

// Prints the table to standard output.
void PrintFigures(const std::vector<Figure>& figures);

// Writes the JSON list; false if the file cannot be written.
bool WriteFigures(const std::string& path, const std::vector<Figure>& figures);

}  // namespace attend::bench

#endif  // ATTEND_TESTS_BENCH_REPORT_H_

// Latency against load: where a server saturates.
#ifndef ATTEND_CLIENT_LOAD_SWEEP_H_
#define ATTEND_CLIENT_LOAD_SWEEP_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/json_output.h"
#include "client/load/report.h"

namespace attend::load {

// Goodput over offered load from which on a server counts as keeping up.
inline constexpr double kKeepsUp = 0.95;

// One rate of a sweep, measured.
struct SweepPoint {
  double rate = 0;  // asked for
  Rates rates;
  Distribution latency;
  double refused_share = 0;  // of the calls, RESOURCE_EXHAUSTED
  double dropped_share = 0;  // of the calls, never sent
  bool keeps_up() const { return rates.good >= kKeepsUp * rates.offered; }
};

SweepPoint PointOf(double rate, const Recorder& recorder);

struct Sweep {
  double closed_loop_rate = 0;     // answers a second of the closed loop that came first; 0: none
  std::vector<SweepPoint> points;  // by rising rate

  // The highest rate at which the server keeps up, as it does at every lower one that was measured.
  // Nothing if it keeps up at none.
  std::optional<double> Saturation() const;
  // Whether some rate was too high, so that the saturation is not above what was measured.
  bool Saturated() const;
  // The largest goodput of all.
  double PeakGoodput() const;
};

// Measures one rate; an error ends the sweep.
using MeasureRate = std::function<absl::StatusOr<SweepPoint>(double rate)>;

struct SweepOptions {
  std::vector<double> rates;  // to measure; empty: found from the closed loop's rate
  // Without rates: the highest to try, in times the closed loop's, which may have been measured in
  // a slow moment.
  double max_factor = 64;
  int refinements = 3;  // halvings of the gap around the saturation
};

// Measures rising rates, then between the saturation and the next higher rate measured. Without
// `rates`: a quarter of `closed_loop_rate` and so on up to the first at which the server does not
// keep up, at most `max_factor` times as much.
absl::StatusOr<Sweep> RunSweep(const SweepOptions& options, double closed_loop_rate,
                               const MeasureRate& measure);

std::string RenderSweep(const Sweep& sweep);
cli::Json ToJson(const Sweep& sweep);

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_SWEEP_H_

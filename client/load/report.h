// The result of a run as a table and as JSON.
#ifndef ATTEND_CLIENT_LOAD_REPORT_H_
#define ATTEND_CLIENT_LOAD_REPORT_H_

#include <optional>
#include <string>

#include "client/cli/json_output.h"
#include "client/cpp/client.h"
#include "client/load/answer_checks.h"
#include "client/load/recorder.h"
#include "client/load/runner.h"

namespace attend::load {

// Rates are per second of the measured time.
struct Rates {
  double offered = 0;  // calls meant to start
  double answered = 0;
  double good = 0;  // answered within the deadline: the goodput
  double tokens = 0;
  double gflops = 0;
};
Rates RatesOf(const Tally& tally, double seconds);

// Calls that ended in an error which is not the caller's doing, as a share of all that were sent.
double ErrorShare(const Recorder& recorder);

struct LoadReport {
  cli::Json load;  // what was asked for, as DescribeLoad tells it
  std::optional<ServerInfo> server;
  RunResult run;
  VerificationReport verification;
  double allowed_errors = 0;  // share

  bool passed() const {
    return verification.failed == 0 && ErrorShare(run.recorder) <= allowed_errors;
  }
};

// "13.2 us", "1.53 ms", "2.41 s".
std::string FormatSeconds(double seconds);

std::string RenderReport(const LoadReport& report, const std::vector<Work>& works);
cli::Json ToJson(const LoadReport& report, const std::vector<Work>& works);
cli::Json ToJson(const Distribution& distribution);
cli::Json ToJson(const Rates& rates);

// "12.3 s  51034 ok  12 other  64 in flight  4150/s", from two moments of a run.
std::string RenderProgress(const Progress& before, const Progress& now);

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_REPORT_H_

// The command line of `attend-load`.
#ifndef ATTEND_CLIENT_LOAD_OPTIONS_H_
#define ATTEND_CLIENT_LOAD_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/context.h"
#include "client/cli/json_output.h"
#include "client/load/arrivals.h"
#include "client/load/pacing.h"
#include "client/load/runner.h"
#include "client/load/sweep.h"

namespace attend::load {

// As given; what --help says of each flag holds for the member of its name.
struct LoadOptions {
  cli::GlobalOptions global{.program = "attend-load"};
  std::int64_t connections = 1;
  std::int64_t in_flight = 1;  // closed loop, on each connection
  double rate = 0;             // open loop, calls a second; 0: closed loop
  std::string arrivals = "poisson";
  std::int64_t max_in_flight = 1024;  // open loop, in all
  std::string warmup = "1s";
  std::string duration = "10s";
  std::vector<std::string> works;
  double cancel_share = 0;
  std::string cancel_within = "10ms";
  std::int64_t verify = 32;
  double allow_errors = 0;
  int attempts = 1;
  std::uint64_t seed = 1;
  std::string json;  // file; empty: none
  SweepOptions sweep;
};

void AddLoadFlags(CLI::App* app, LoadOptions* options);
void AddSweepFlags(CLI::App* app, LoadOptions* options);

// What follows the flags in --help.
std::string LoadHelp();
std::string SweepHelp();

// The options that are texts, read.
struct LoadPlan {
  RunOptions run;
  std::vector<Work> works;
};

// INVALID_ARGUMENT that names the flag.
absl::StatusOr<LoadPlan> MakePlan(const LoadOptions& options);

// The loop that the options ask for: open at `rate`, or closed where it is 0.
std::unique_ptr<Pacing> MakePacing(const LoadOptions& options, const RunOptions& run, double rate);

// What a report says about how it came about.
cli::Json DescribeLoad(const LoadOptions& options, const LoadPlan& plan);

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_OPTIONS_H_

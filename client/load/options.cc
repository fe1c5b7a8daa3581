#include "client/load/options.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend::load {

namespace {

using cli::Json;

constexpr std::int64_t kMaxConnections = 64;
constexpr std::int64_t kMaxInFlight = 100'000;
constexpr std::int64_t kMaxVerified = 100'000;
constexpr double kMaxRate = 1e7;
constexpr double kMinRate = 1e-3;
constexpr int kMaxAttempts = 5;
constexpr int kMaxRefinements = 20;
constexpr double kMinFactor = 0.25;
constexpr double kMaxFactor = 1000;

void AddLoopFlags(CLI::App* app, LoadOptions* options) {
  constexpr const char* kGroup = "How calls start";
  app->add_option("--connections", options->connections, "TCP (or Unix) connections to use")
      ->check(CLI::Range(std::int64_t{1}, kMaxConnections))
      ->capture_default_str()
      ->group(kGroup);
  CLI::Option* in_flight =
      app->add_option("--in-flight", options->in_flight,
                      "Closed loop: so many calls are always in flight on each connection")
          ->check(CLI::Range(std::int64_t{1}, kMaxInFlight))
          ->capture_default_str()
          ->group(kGroup);
  CLI::Option* rate =
      app->add_option("--rate", options->rate,
                      "Open loop: so many calls start each second, whatever became of those before")
          ->check(CLI::Range(kMinRate, kMaxRate))
          ->group(kGroup);
  rate->excludes(in_flight);
  app->add_option("--arrivals", options->arrivals,
                  "Open loop: poisson (random gaps) or constant (equal ones)")
      ->check(CLI::IsMember({"poisson", "constant"}))
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--max-in-flight", options->max_in_flight,
                  "Open loop: what would exceed so many in all is not sent, and told as dropped")
      ->check(CLI::Range(std::int64_t{1}, kMaxInFlight))
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--warmup", options->warmup, "Time before the measured time")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--duration", options->duration, "Measured time (of each rate of a sweep)")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--seed", options->seed, "Of everything random: the same seed, the same requests")
      ->capture_default_str()
      ->group(kGroup);
}

void AddCallFlags(CLI::App* app, LoadOptions* options) {
  constexpr const char* kGroup = "What the calls are";
  app->add_option("--work", options->works,
                  "A kind of request, as KEY=VALUE,... (see below); give several for a mix")
      ->allow_extra_args(false)  // so that each stands behind a flag of its own
      ->group(kGroup);
  app->add_option("--cancel", options->cancel_share, "Share of the calls to give up, 0 to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--cancel-within", options->cancel_within,
                  "A call is given up after a random time of up to this")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--attempts", options->attempts,
                  "Of a call that is refused or finds no server; 1: no retries")
      ->check(CLI::Range(1, kMaxAttempts))
      ->capture_default_str()
      ->group(kGroup);
}

void AddResultFlags(CLI::App* app, LoadOptions* options) {
  constexpr const char* kGroup = "Results";
  app->add_option("--verify", options->verify,
                  "Answers, drawn at random, to compare with the float64 reference when the load "
                  "has ended")
      ->check(CLI::Range(std::int64_t{0}, kMaxVerified))
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--allow-errors", options->allow_errors,
                  "Share of the calls that may end in an error which is not the caller's, 0 to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--json", options->json, "Also write the report to this file")->group(kGroup);
}

ArrivalKind KindOf(const std::string& name) {
  return name == "constant" ? ArrivalKind::kConstant : ArrivalKind::kPoisson;
}

absl::Status ReadTime(const char* flag, const std::string& text, bool zero_allowed,
                      std::chrono::nanoseconds* time) {
  const absl::StatusOr<std::chrono::nanoseconds> parsed = ParseDuration(text);
  if (!parsed.ok()) {
    return InvalidField(flag, absl::StrCat("is \"", text, "\": ", parsed.status().message()));
  }
  if (parsed->count() == 0 && !zero_allowed) {
    return InvalidField(flag, "is 0; expected more");
  }
  *time = *parsed;
  return absl::OkStatus();
}

}  // namespace

void AddLoadFlags(CLI::App* app, LoadOptions* options) {
  AddLoopFlags(app, options);
  AddCallFlags(app, options);
  AddResultFlags(app, options);
}

void AddSweepFlags(CLI::App* app, LoadOptions* options) {
  app->add_option("--rates", options->sweep.rates,
                  "Calls a second to measure, as R,R,... (default: from a quarter of what a closed "
                  "loop reaches up to the first that is too much)")
      ->delimiter(',')
      ->check(CLI::Range(kMinRate, kMaxRate));
  app->add_option("--up-to", options->sweep.max_factor,
                  "Without --rates: the highest rate to try, in times what the closed loop reached")
      ->check(CLI::Range(kMinFactor, kMaxFactor))
      ->capture_default_str();
  app->add_option("--refinements", options->sweep.refinements,
                  "Further rates, each halving the gap around the saturation")
      ->check(CLI::Range(0, kMaxRefinements))
      ->capture_default_str();
}

std::string LoadHelp() {
  return absl::StrCat(
      WorkHelp(),
      "\nTimes: 10, 1.5s, 20ms. Goodput: answers within their deadline. Latencies are those of "
      "answers;\nin the open loop they count from when the call was meant to start.\n"
      "\nExamples:\n"
      "  attend-load --connections 2 --in-flight 8 --work length=512,dtype=bfloat16\n"
      "  attend-load --rate 200 --duration 30s --work "
      "length=lognormal:256:1,causal,deadline=100ms\n"
      "  attend-load --rate 500 --json load.json \\\n"
      "    --work share=9,phase=decode,length=uniform:1:4096,kv_heads=4,priority=high \\\n"
      "    --work share=1,length=uniform:256:1024,causal\n"
      "  attend-load --server unix:/run/attend.sock --stream --shared-memory 256MiB --in-flight 8\n"
      "  attend-load sweep --duration 3s --work length=128,deadline=50ms\n"
      "\nExit codes:\n"
      "  0  the run has ended as it should\n"
      "  1  an answer was wrong, or more calls than --allow-errors ended in an error that is not "
      "the\n     caller's: none of RESOURCE_EXHAUSTED, a missed deadline of --work, or a call "
      "given up\n"
      "  2  a flag is wrong, or the report cannot be written\n"
      "  3  the server is unreachable, or shutting down\n"
      "  4, 5, 6  the server refused to tell about itself, did not answer in time, or failed\n");
}

std::string SweepHelp() {
  return "First a closed loop (--connections, --in-flight) finds about how much the server can "
         "do; then\nopen loops at rising rates are measured for --duration each, until one is too "
         "much or --up-to is reached. The\nsaturation is the highest rate at which goodput is at "
         "least "
         "0.95 of the offered load, there and at\nevery lower rate measured. Give --work a "
         "deadline "
         "to bound what latency counts as good.\n\nAll other flags: see attend-load --help\n";
}

absl::StatusOr<LoadPlan> MakePlan(const LoadOptions& options) {
  LoadPlan plan;
  RunOptions& run = plan.run;
  absl::Status status = ReadTime("--warmup", options.warmup, true, &run.warmup);
  status.Update(ReadTime("--duration", options.duration, false, &run.duration));
  status.Update(ReadTime("--cancel-within", options.cancel_within, true, &run.cancel_within));
  if (!status.ok()) return status;
  run.cancel_share = options.cancel_share;
  run.verify = options.verify;
  run.seed = options.seed;
  run.wait_for_ready = options.global.wait;
  const std::vector<std::string> default_work = {""};
  for (const std::string& text : options.works.empty() ? default_work : options.works) {
    absl::StatusOr<Work> work = ParseWork(text);
    if (!work.ok()) return work.status();
    plan.works.push_back(*std::move(work));
  }
  return plan;
}

std::unique_ptr<Pacing> MakePacing(const LoadOptions& options, const RunOptions& run, double rate) {
  const std::chrono::nanoseconds end = run.warmup + run.duration;
  if (rate == 0) {
    return std::make_unique<ClosedLoop>(options.connections * options.in_flight, end);
  }
  return std::make_unique<OpenLoop>(Arrivals(KindOf(options.arrivals), rate, options.seed),
                                    options.max_in_flight, end);
}

cli::Json DescribeLoad(const LoadOptions& options, const LoadPlan& plan) {
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  Json load = {{"server", options.global.server}, {"connections", options.connections}};
  load["transport"] = options.global.stream ? "stream" : "unary";
  load["shared_memory_bytes"] = options.global.shared_memory_bytes;
  if (options.rate > 0) {
    load["loop"] = "open";
    load["rate"] = options.rate;
    load["arrivals"] = options.arrivals;
    load["max_in_flight"] = options.max_in_flight;
  } else {
    load["loop"] = "closed";
    load["in_flight"] = options.in_flight;
  }
  load["warmup_seconds"] = seconds(plan.run.warmup);
  load["duration_seconds"] = seconds(plan.run.duration);
  load["cancel_share"] = options.cancel_share;
  load["attempts"] = options.attempts;
  load["seed"] = options.seed;
  load["work"] = options.works;
  return load;
}

}  // namespace attend::load

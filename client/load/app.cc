#include "client/load/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/usage_error.h"
#include "client/load/options.h"
#include "client/load/report.h"
#include "client/load/sweep.h"
#include "client/load/transport.h"
#include "core/base/status.h"

namespace attend::load {

namespace {

constexpr std::chrono::milliseconds kProgressInterval{500};

// The closed loop that comes before a sweep.
constexpr std::int64_t kProbeInFlight = 16;
constexpr std::chrono::seconds kLongestProbe{3};

// A line that the next one is written over, and that is gone once the run is over.
class ProgressLine {
 public:
  explicit ProgressLine(const AppStreams& streams) : streams_(streams) {}
  ~ProgressLine() { Show(""); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Update(const Progress& progress) {
    if (progress.elapsed - last_.elapsed < kProgressInterval) return;
    Show(RenderProgress(last_, progress));
    last_ = progress;
  }

 private:
  void Show(const std::string& text) {
    if (streams_.show_progress) streams_.err << "\r\x1b[K" << text << std::flush;
  }

  const AppStreams& streams_;
  Progress last_;
};

class App {
 public:
  App(const LoadOptions& options, const AppStreams& streams)
      : options_(options), streams_(streams), context_{options.global, streams.out, streams.err} {}

  int Run(bool sweep) {
    absl::StatusOr<LoadPlan> plan = MakePlan(options_);
    if (!plan.ok()) return context_.InputError(plan.status());
    plan_ = *std::move(plan);
    if (sweep && options_.rate > 0) {
      return context_.InputError(InvalidField("--rate", "does not go with sweep; give --rates"));
    }
    if (!CanWriteJson()) return JsonError();
    const absl::Status mix_status = MakeMix();
    if (!mix_status.ok()) return context_.InputError(mix_status);
    const absl::Status status = Connect();
    if (absl::IsInvalidArgument(status)) return context_.InputError(status);
    if (!status.ok()) return context_.CallError(status);
    return sweep ? RunSweep() : RunLoad();
  }

 private:
  absl::Status MakeMix() {
    absl::StatusOr<RequestMix> mix =
        RequestMix::Create(plan_.works, options_.global.max_message_bytes, options_.seed);
    if (!mix.ok()) return mix.status();
    mix_ = std::make_unique<RequestMix>(*std::move(mix));
    return absl::OkStatus();
  }

  absl::Status Connect() {
    ClientOptions client_options = context_.MakeClientOptions();
    client_options.connections = static_cast<int>(options_.connections);
    client_options.retry.max_attempts = options_.attempts;
    absl::StatusOr<std::unique_ptr<Client>> client = context_.MakeClient(client_options);
    if (!client.ok()) return client.status();
    absl::StatusOr<ServerInfo> info = (*client)->GetServerInfo(context_.MakeCallOptions());
    if (!info.ok()) return info.status();
    server_ = *std::move(info);
    transport_ = std::make_unique<ClientTransport>(*std::move(client));
    return absl::OkStatus();
  }

  RunResult RunAt(double rate, const LoadOptions& options, const RunOptions& run) {
    ProgressLine line(streams_);
    const auto pacing = MakePacing(options, run, rate);
    return load::Run(
        run, *pacing, *mix_, *transport_,
        {.on_progress = [&line](const Progress& now) { line.Update(now); }, .stop = streams_.stop});
  }

  int RunLoad() {
    LoadReport report{.load = DescribeLoad(options_, plan_),
                      .server = server_,
                      .run = RunAt(options_.rate, options_, plan_.run),
                      .allowed_errors = options_.allow_errors};
    report.verification = report.run.sample.Verify(*mix_);
    streams_.out << RenderReport(report, plan_.works);
    if (!WriteJson(ToJson(report, plan_.works))) return JsonError();
    return report.passed() ? cli::kOk : cli::kCheckFailed;
  }

  bool Stopped() const { return streams_.stop != nullptr && *streams_.stop; }

  // About how much the server can do, in whatever time it takes. Nothing of it is verified.
  double ProbeRate() {
    LoadOptions options = options_;
    if (options.connections * options.in_flight < kProbeInFlight) {
      options.in_flight = kProbeInFlight / options.connections;
    }
    RunOptions run = plan_.run;
    run.verify = 0;
    run.ignore_deadlines = true;
    run.duration = std::min<std::chrono::nanoseconds>(run.duration, kLongestProbe);
    const RunResult result = RunAt(0, options, run);
    return RatesOf(result.recorder.total(), result.recorder.measured_seconds()).answered;
  }

  // A point of the sweep. What goes wrong at it is kept: the sweep goes on.
  absl::StatusOr<SweepPoint> MeasurePoint(double rate) {
    if (Stopped()) return absl::CancelledError("stopped before the sweep was complete");
    const RunResult result = RunAt(rate, options_, plan_.run);
    const VerificationReport verification = result.sample.Verify(*mix_);
    if (verification.failed > 0 && failure_.empty()) {
      failure_ = absl::StrCat("wrong answer: ", verification.first_failure);
    }
    if (ErrorShare(result.recorder) > options_.allow_errors && failure_.empty()) {
      failure_ = absl::StrCat("more errors than --allow-errors at ", rate, "/s");
    }
    return PointOf(rate, result.recorder);
  }

  int RunSweep() {
    double closed_loop_rate = 0;
    if (options_.sweep.rates.empty()) {
      closed_loop_rate = ProbeRate();
      if (closed_loop_rate <= 0) {
        return context_.CallError(
            absl::UnavailableError("the closed loop before the sweep got no answer in its time; "
                                   "run attend-load without sweep to see why"));
      }
    }
    const absl::StatusOr<Sweep> sweep = load::RunSweep(
        options_.sweep, closed_loop_rate, [this](double rate) { return MeasurePoint(rate); });
    if (!sweep.ok()) return context_.CallError(sweep.status());
    streams_.out << RenderSweep(*sweep);
    if (!failure_.empty()) streams_.out << "FAILED: " << failure_ << "\n";
    cli::Json json = {{"load", DescribeLoad(options_, plan_)}, {"passed", failure_.empty()}};
    json.update(ToJson(*sweep));
    if (!WriteJson(json)) return JsonError();
    return failure_.empty() ? cli::kOk : cli::kCheckFailed;
  }

  // Before the run, whose result would be lost.
  bool CanWriteJson() const {
    return options_.json.empty() || std::ofstream(options_.json, std::ios::app).good();
  }

  bool WriteJson(const cli::Json& json) const {
    if (options_.json.empty()) return true;
    std::ofstream file(options_.json);
    file << json.dump(2) << "\n" << std::flush;
    return file.good();
  }

  int JsonError() const {
    return context_.InputError(
        InvalidField("--json", absl::StrCat("cannot write ", options_.json)));
  }

  const LoadOptions& options_;
  const AppStreams& streams_;
  const cli::Context context_;
  LoadPlan plan_;
  std::unique_ptr<RequestMix> mix_;
  std::optional<ServerInfo> server_;
  std::unique_ptr<Transport> transport_;
  std::string failure_;  // of a sweep; empty: none
};

}  // namespace

int Run(int argc, const char* const* argv, const AppStreams& streams) {
  CLI::App app("Load for an attend server, and what comes of it.", "attend-load");
  app.set_version_flag("--version", "attend-load " ATTEND_VERSION);
  app.footer(LoadHelp());
  LoadOptions options;
  cli::AddConnectionFlags(&app, &options.global);
  AddLoadFlags(&app, &options);
  CLI::App* sweep = app.add_subcommand("sweep", "Find the saturation: latency against load");
  sweep->fallthrough();  // the flags of a load may stand behind it
  sweep->footer(SweepHelp());
  AddSweepFlags(sweep, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, streams.out, streams.err);  // --help
    streams.err << "attend-load: " << cli::UsageErrorText(app, error) << "\n";
    return cli::kUsage;
  }
  return App(options, streams).Run(sweep->parsed());
}

}  // namespace attend::load

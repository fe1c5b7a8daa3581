#include "client/load/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/render.h"

namespace attend::load {

namespace {

using cli::Json;
using cli::Table;

constexpr double kGiga = 1e9;

std::string Number(double value) { return absl::StrFormat("%.1f", value); }

std::vector<std::string> DistributionCells(std::string name, const Distribution& distribution) {
  std::vector<std::string> cells = {std::move(name)};
  for (const double value : {distribution.mean, distribution.p50, distribution.p90,
                             distribution.p99, distribution.p999, distribution.max}) {
    cells.push_back(distribution.count > 0 ? FormatSeconds(value) : "-");
  }
  return cells;
}

std::string RenderDistributions(const Recorder& recorder) {
  Table table({"", "mean", "p50", "p90", "p99", "p99.9", "max"});
  table.AddRow(DistributionCells("latency", recorder.total().latency.Summarize()));
  table.AddRow(DistributionCells("server queue", recorder.queue().Summarize()));
  table.AddRow(DistributionCells("server compute", recorder.compute().Summarize()));
  table.AddRow(DistributionCells("sent late by", recorder.lag().Summarize()));
  return table.ToString();
}

std::string RenderWorks(const Recorder& recorder, const std::vector<Work>& works) {
  Table table({"offered/s", "goodput/s", "p50", "p99", "max", "work"});
  for (std::size_t i = 0; i < works.size(); ++i) {
    const Tally& tally = recorder.works()[i];
    const Rates rates = RatesOf(tally, recorder.measured_seconds());
    const Distribution latency = tally.latency.Summarize();
    table.AddRow({Number(rates.offered), Number(rates.good), FormatSeconds(latency.p50),
                  FormatSeconds(latency.p99), FormatSeconds(latency.max),
                  works[i].text.empty() ? "(default)" : works[i].text});
  }
  return table.ToString();
}

std::string RenderCodes(const Recorder& recorder) {
  Table table({"code", "calls", "errors", "first message"});
  for (const auto& [code, count] : recorder.codes()) {
    table.AddRow({absl::StatusCodeToString(code), absl::StrCat(count.calls),
                  absl::StrCat(count.errors), count.message});
  }
  const std::int64_t dropped = recorder.total().dropped;
  if (dropped > 0) {
    table.AddRow({"(not sent)", absl::StrCat(dropped), "0",
                  "as many calls as --max-in-flight allows were waiting already"});
  }
  return table.ToString();
}

std::string RenderVerification(const VerificationReport& report) {
  if (report.checked == 0) return "";
  std::string text = absl::StrFormat(
      "verified %d answers (%d elements) against the float64 reference: %d wrong, at most %.3g of "
      "the bound\n",
      report.checked, report.elements, report.failed, report.max_error_over_bound);
  if (report.failed > 0) absl::StrAppend(&text, "first wrong answer: ", report.first_failure, "\n");
  return text;
}

Json ToJson(const VerificationReport& report) {
  Json json = {{"checked", report.checked},
               {"failed", report.failed},
               {"elements", report.elements},
               {"max_error_over_bound", cli::ToJson(report.max_error_over_bound)}};
  if (report.failed > 0) json["first_failure"] = report.first_failure;
  return json;
}

Json CodesToJson(const Recorder& recorder) {
  Json codes = Json::object();
  for (const auto& [code, count] : recorder.codes()) {
    Json& entry = codes[absl::StatusCodeToString(code)];
    entry = {{"calls", count.calls}, {"errors", count.errors}};
    if (!count.message.empty()) entry["message"] = count.message;
  }
  return codes;
}

Json TallyToJson(const Tally& tally, double seconds) {
  Json json = ToJson(RatesOf(tally, seconds));
  json["calls"] = tally.calls;
  json["dropped"] = tally.dropped;
  json["latency_seconds"] = ToJson(tally.latency.Summarize());
  return json;
}

Json ServerToJson(const ServerInfo& server) {
  return {{"name", server.server},
          {"version", server.version},
          {"cpu_target", server.cpu_target},
          {"compute_threads", server.compute_threads}};
}

}  // namespace

Rates RatesOf(const Tally& tally, double seconds) {
  if (seconds <= 0) return {};
  return {.offered = static_cast<double>(tally.calls) / seconds,
          .answered = static_cast<double>(tally.answered) / seconds,
          .good = static_cast<double>(tally.good) / seconds,
          .tokens = static_cast<double>(tally.tokens) / seconds,
          .gflops = static_cast<double>(tally.flops) / seconds / kGiga};
}

double ErrorShare(const Recorder& recorder) {
  std::int64_t calls = 0;
  std::int64_t errors = 0;
  for (const auto& [code, count] : recorder.codes()) {
    calls += count.calls;
    errors += count.errors;
  }
  return calls == 0 ? 0 : static_cast<double>(errors) / static_cast<double>(calls);
}

std::string FormatSeconds(double seconds) {
  return cli::FormatDuration(std::chrono::nanoseconds(std::llround(seconds * kGiga)));
}

std::string RenderReport(const LoadReport& report, const std::vector<Work>& works) {
  const Recorder& recorder = report.run.recorder;
  const Rates rates = RatesOf(recorder.total(), recorder.measured_seconds());
  std::string text = absl::StrFormat(
      "measured %.2f s: offered %.1f/s, answered %.1f/s, goodput %.1f/s, %.0f tokens/s, "
      "%.2f GFLOP/s\n",
      recorder.measured_seconds(), rates.offered, rates.answered, rates.good, rates.tokens,
      rates.gflops);
  absl::StrAppend(&text, "\n", RenderDistributions(recorder), "\n", RenderCodes(recorder));
  if (works.size() > 1) absl::StrAppend(&text, "\n", RenderWorks(recorder, works));
  absl::StrAppend(&text, "\n", RenderVerification(report.verification));
  absl::StrAppendFormat(&text, "the generator used %.2f of a core\n", report.run.cpu_cores);
  const double errors = ErrorShare(recorder);
  if (errors > report.allowed_errors) {
    absl::StrAppendFormat(&text,
                          "FAILED: %.3g %% of the calls ended in an error that is not the "
                          "caller's; --allow-errors allows %.3g %%\n",
                          100 * errors, 100 * report.allowed_errors);
  }
  if (report.verification.failed > 0) absl::StrAppend(&text, "FAILED: wrong answers\n");
  return text;
}

cli::Json ToJson(const Distribution& distribution) {
  return {{"count", distribution.count}, {"mean", distribution.mean}, {"p50", distribution.p50},
          {"p90", distribution.p90},     {"p99", distribution.p99},   {"p99.9", distribution.p999},
          {"max", distribution.max}};
}

cli::Json ToJson(const Rates& rates) {
  return {{"offered_per_second", rates.offered},
          {"answered_per_second", rates.answered},
          {"goodput_per_second", rates.good},
          {"tokens_per_second", rates.tokens},
          {"gflops_per_second", rates.gflops}};
}

cli::Json ToJson(const LoadReport& report, const std::vector<Work>& works) {
  const Recorder& recorder = report.run.recorder;
  const double seconds = recorder.measured_seconds();
  Json json = {{"load", report.load}, {"measured_seconds", seconds}};
  if (report.server.has_value()) json["server"] = ServerToJson(*report.server);
  json.update(TallyToJson(recorder.total(), seconds));
  json["server_queue_seconds"] = ToJson(recorder.queue().Summarize());
  json["server_compute_seconds"] = ToJson(recorder.compute().Summarize());
  json["sent_late_seconds"] = ToJson(recorder.lag().Summarize());
  json["codes"] = CodesToJson(recorder);
  json["work"] = Json::array();
  for (std::size_t i = 0; i < works.size(); ++i) {
    Json work = TallyToJson(recorder.works()[i], seconds);
    work["work"] = works[i].text;
    json["work"].push_back(std::move(work));
  }
  json["verification"] = ToJson(report.verification);
  json["generator_cpu_cores"] = report.run.cpu_cores;
  json["error_share"] = ErrorShare(recorder);
  json["passed"] = report.passed();
  return json;
}

std::string RenderProgress(const Progress& before, const Progress& now) {
  const double seconds = std::chrono::duration<double>(now.elapsed - before.elapsed).count();
  const double rate =
      seconds > 0 ? static_cast<double>(now.ended_ok - before.ended_ok) / seconds : 0;
  return absl::StrFormat("%.1f s  %d ok  %d other  %d in flight  %.0f/s",
                         std::chrono::duration<double>(now.elapsed).count(), now.ended_ok,
                         now.ended - now.ended_ok, now.in_flight, rate);
}

}  // namespace attend::load

#include "client/load/sweep.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/render.h"

namespace attend::load {

namespace {

using cli::Json;

// Of the closed loop's rate, where no rates are given.
constexpr double kShares[] = {0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0};
constexpr double kFurther = 1.5;  // from one rate to the next past those

bool ByRate(const SweepPoint& a, const SweepPoint& b) { return a.rate < b.rate; }

absl::Status Measure(double rate, const MeasureRate& measure, Sweep* sweep) {
  absl::StatusOr<SweepPoint> point = measure(rate);
  if (!point.ok()) return point.status();
  sweep->points.insert(std::upper_bound(sweep->points.begin(), sweep->points.end(), *point, ByRate),
                       *point);
  return absl::OkStatus();
}

// The lowest rate at which the server does not keep up; nothing if there is none.
std::optional<double> FirstTooHigh(const Sweep& sweep) {
  const auto found = std::find_if(sweep.points.begin(), sweep.points.end(),
                                  [](const SweepPoint& point) { return !point.keeps_up(); });
  if (found == sweep.points.end()) return std::nullopt;
  return found->rate;
}

std::vector<double> SharesUpTo(double max_factor) {
  std::vector<double> shares;
  for (const double share : kShares) {
    if (share <= max_factor) shares.push_back(share);
  }
  for (double share = kFurther * kShares[std::size(kShares) - 1]; share <= max_factor;
       share *= kFurther) {
    shares.push_back(share);
  }
  return shares;
}

std::string Percent(double share) { return absl::StrFormat("%.1f", 100 * share); }

}  // namespace

SweepPoint PointOf(double rate, const Recorder& recorder) {
  SweepPoint point{.rate = rate,
                   .rates = RatesOf(recorder.total(), recorder.measured_seconds()),
                   .latency = recorder.total().latency.Summarize()};
  const auto calls = static_cast<double>(recorder.total().calls);
  if (calls == 0) return point;
  const auto refused = recorder.codes().find(absl::StatusCode::kResourceExhausted);
  if (refused != recorder.codes().end()) {
    point.refused_share = static_cast<double>(refused->second.calls) / calls;
  }
  point.dropped_share = static_cast<double>(recorder.total().dropped) / calls;
  return point;
}

std::optional<double> Sweep::Saturation() const {
  std::optional<double> saturation;
  for (const SweepPoint& point : points) {
    if (!point.keeps_up()) break;
    saturation = point.rate;
  }
  return saturation;
}

bool Sweep::Saturated() const { return FirstTooHigh(*this).has_value(); }

double Sweep::PeakGoodput() const {
  double peak = 0;
  for (const SweepPoint& point : points) peak = std::max(peak, point.rates.good);
  return peak;
}

absl::StatusOr<Sweep> RunSweep(const SweepOptions& options, double closed_loop_rate,
                               const MeasureRate& measure) {
  Sweep sweep{.closed_loop_rate = closed_loop_rate};
  std::vector<double> rates = options.rates;
  if (rates.empty()) {
    for (const double share : SharesUpTo(options.max_factor)) {
      rates.push_back(share * closed_loop_rate);
    }
  }
  std::sort(rates.begin(), rates.end());
  for (const double rate : rates) {
    const absl::Status status = Measure(rate, measure, &sweep);
    if (!status.ok()) return status;
    if (options.rates.empty() && sweep.Saturated()) break;
  }
  for (int i = 0; i < options.refinements; ++i) {
    const std::optional<double> low = sweep.Saturation();
    const std::optional<double> high = FirstTooHigh(sweep);
    if (!low.has_value() || !high.has_value()) break;
    const absl::Status status = Measure((*low + *high) / 2, measure, &sweep);
    if (!status.ok()) return status;
  }
  return sweep;
}

std::string RenderSweep(const Sweep& sweep) {
  cli::Table table({"rate/s", "offered/s", "goodput/s", "p50", "p90", "p99", "p99.9", "max",
                    "refused %", "dropped %", ""});
  for (const SweepPoint& point : sweep.points) {
    const Distribution& latency = point.latency;
    table.AddRow({absl::StrFormat("%.1f", point.rate), absl::StrFormat("%.1f", point.rates.offered),
                  absl::StrFormat("%.1f", point.rates.good), FormatSeconds(latency.p50),
                  FormatSeconds(latency.p90), FormatSeconds(latency.p99),
                  FormatSeconds(latency.p999), FormatSeconds(latency.max),
                  Percent(point.refused_share), Percent(point.dropped_share),
                  point.keeps_up() ? "" : "too much"});
  }
  std::string text = table.ToString();
  const std::optional<double> saturation = sweep.Saturation();
  if (!saturation.has_value()) {
    absl::StrAppend(&text, "no rate measured was low enough: give lower --rates\n");
  } else if (!sweep.Saturated()) {
    absl::StrAppendFormat(&text, "not saturated at %.1f/s: give higher --rates or --up-to\n",
                          *saturation);
  } else {
    absl::StrAppendFormat(&text, "saturation: %.1f/s; peak goodput: %.1f/s\n", *saturation,
                          sweep.PeakGoodput());
  }
  return text;
}

cli::Json ToJson(const Sweep& sweep) {
  Json points = Json::array();
  for (const SweepPoint& point : sweep.points) {
    Json json = {{"rate", point.rate}};
    json.update(ToJson(point.rates));
    json["latency_seconds"] = ToJson(point.latency);
    json["refused_share"] = point.refused_share;
    json["dropped_share"] = point.dropped_share;
    json["keeps_up"] = point.keeps_up();
    points.push_back(std::move(json));
  }
  const std::optional<double> saturation = sweep.Saturation();
  return {{"closed_loop_per_second", sweep.closed_loop_rate},
          {"points", std::move(points)},
          {"saturated", sweep.Saturated()},
          {"saturation_per_second", saturation.has_value() ? Json(*saturation) : Json(nullptr)},
          {"peak_goodput_per_second", sweep.PeakGoodput()}};
}

}  // namespace attend::load

#include "tests/bench/report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace attend::bench {

void BestRates::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    const auto rate = run.counters.find("rate");
    if (run.run_type != Run::RT_Iteration || rate == run.counters.end()) continue;
    double& best = rates_[run.run_name.function_name];
    best = std::max(best, static_cast<double>(rate->second));
  }
}

double BestRates::rate(const std::string& name) const {
  const auto found = rates_.find(name);
  return found == rates_.end() ? 0 : found->second;
}

void PrintFigures(const std::vector<Figure>& figures) {
  std::printf("%-32s %12s %8s %-6s %s\n", "name", "value", "target", "", "unit");
  for (const Figure& figure : figures) {
    if (!figure.measured()) {
      std::printf("%-32s %12s %8s %-6s %s\n", figure.name.c_str(), "not measured", "-", "",
                  figure.unit.c_str());
      continue;
    }
    const char* verdict = "";
    char target[16] = "-";
    if (figure.target.has_value()) {
      verdict = figure.MeetsTarget() ? "met" : "short";
      std::snprintf(target, sizeof(target), "%s%.2f", figure.at_most ? "<" : "", *figure.target);
    }
    std::printf("%-32s %12.3f %8s %-6s %s\n", figure.name.c_str(), figure.value, target, verdict,
                figure.unit.c_str());
  }
}

bool WriteFigures(const std::string& path, const std::vector<Figure>& figures) {
  nlohmann::json list = nlohmann::json::array();
  for (const Figure& figure : figures) {
    nlohmann::json entry = {{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}};
    entry["target"] = figure.target.has_value() ? nlohmann::json(*figure.target) : nullptr;
    list.push_back(std::move(entry));
  }
  std::ofstream file(path);
  file << list.dump(2) << "\n";
  return file.good();
}

}  // namespace attend::bench

#include "server/observe/process_metrics.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/observe/family.h"

namespace attend {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Fields of /proc/self/stat from the third on: the second is the program's name in parentheses and
// may hold anything. Field n of proc(5) is at n - 3.
std::vector<std::string> StatFields() {
  const std::string stat = ReadFile("/proc/self/stat");
  const auto name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return {};
  return absl::StrSplit(stat.substr(name_end + 2), ' ');
}

std::optional<double> Field(const std::vector<std::string>& fields, std::size_t number) {
  double value = 0;
  if (number - 3 >= fields.size() || !absl::SimpleAtod(fields[number - 3], &value)) return {};
  return value;
}

std::optional<double> Times(std::optional<double> value, double factor) {
  if (value.has_value()) *value *= factor;
  return value;
}

std::optional<double> CpuSeconds(const std::vector<std::string>& fields, double seconds_per_tick) {
  const std::optional<double> user = Field(fields, 14);
  const std::optional<double> system = Field(fields, 15);
  if (!user.has_value() || !system.has_value()) return {};
  return (*user + *system) * seconds_per_tick;
}

// Seconds since the epoch.
std::optional<double> StartTime(const std::vector<std::string>& fields, double seconds_per_tick) {
  const std::optional<double> ticks_after_boot = Field(fields, 22);
  if (!ticks_after_boot.has_value()) return {};
  std::istringstream lines(ReadFile("/proc/stat"));
  for (std::string key; lines >> key; lines.ignore(1 << 20, '\n')) {
    double boot = 0;
    if (key == "btime" && lines >> boot) return boot + *ticks_after_boot * seconds_per_tick;
  }
  return {};
}

std::optional<double> OpenFds() {
  std::error_code error;
  const std::filesystem::directory_iterator fds("/proc/self/fd", error);
  if (error) return {};
  // Less the one that reads the folder.
  return static_cast<double>(std::distance(begin(fds), end(fds)) - 1);
}

std::optional<double> MaxFds() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::vector<MetricFamily> ProcessMetrics::Collect() const {
  const std::vector<std::string> fields = StatFields();
  const double seconds_per_tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  std::vector<MetricFamily> families;
  const auto add = [&families](const char* name, const char* help, MetricType type,
                               std::optional<double> value) {
    if (value.has_value()) families.push_back(MakeFamily(name, help, type, *value));
  };
  add("process_cpu_seconds_total", "Processor time used, in user and system mode.",
      MetricType::Counter, CpuSeconds(fields, seconds_per_tick));
  add("process_resident_memory_bytes", "Memory in RAM.", MetricType::Gauge,
      Times(Field(fields, 24), page_bytes));
  add("process_virtual_memory_bytes", "Address space in use.", MetricType::Gauge,
      Field(fields, 23));
  add("process_open_fds", "File descriptors that are open.", MetricType::Gauge, OpenFds());
  add("process_max_fds", "File descriptors that may be open.", MetricType::Gauge, MaxFds());
  add("process_threads", "Threads.", MetricType::Gauge, Field(fields, 20));
  add("process_start_time_seconds", "Start of the process, in seconds since the epoch.",
      MetricType::Gauge, StartTime(fields, seconds_per_tick));
  return families;
}

}  // namespace attend

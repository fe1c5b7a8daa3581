#include "core/executor/cpu_limits.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace attend {

namespace {

// The file's text, or nothing if it cannot be read.
std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::optional<double> Smaller(std::optional<double> a, std::optional<double> b) {
  if (!a.has_value()) return b;
  if (!b.has_value()) return a;
  return std::min(*a, *b);
}

// The quota of one cgroup folder: v2's cpu.max, or v1's pair of files.
std::optional<double> QuotaOfFolder(const std::string& folder) {
  if (const auto text = ReadFile(folder + "/cpu.max")) return ParseCpuMax(*text);
  const auto quota = ReadFile(folder + "/cpu.cfs_quota_us");
  const auto period = ReadFile(folder + "/cpu.cfs_period_us");
  if (!quota.has_value() || !period.has_value()) return std::nullopt;
  return ParseCpuMax(absl::StrCat(*quota, " ", *period));
}

// A quota binds every group below it, so the smallest on the way to the root counts.
std::optional<double> QuotaOnPath(const std::string& root, std::string group) {
  std::optional<double> quota = QuotaOfFolder(root);
  while (group.size() > 1) {
    quota = Smaller(quota, QuotaOfFolder(root + group));
    group.resize(group.rfind('/'));
  }
  return quota;
}

int AffinityCpus() {
  // The kernel refuses a set smaller than its own, so grow until it fits.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) return 1;
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    const int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 1;
}

}  // namespace

std::optional<double> ParseCpuMax(absl::string_view text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n\t"), absl::SkipEmpty());
  double quota = 0;
  double period = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) ||
      !absl::SimpleAtod(words[1], &period)) {
    return std::nullopt;
  }
  // v1 writes a quota of -1 for none.
  if (!(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

std::optional<double> CgroupCpuQuota() {
  const auto groups = ReadFile("/proc/self/cgroup");
  if (!groups.has_value()) return std::nullopt;
  std::optional<double> quota;
  for (const absl::string_view line : absl::StrSplit(*groups, '\n', absl::SkipEmpty())) {
    // "hierarchy:controllers:path"; v2 has no controllers.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool v1 = std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end();
    if (!v1 && !parts[1].empty()) continue;
    for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                             "/sys/fs/cgroup/unified"}) {
      quota = Smaller(quota, QuotaOnPath(root, parts[2]));
    }
  }
  return quota;
}

int UsableCpus() {
  const int cpus = AffinityCpus();
  const std::optional<double> quota = CgroupCpuQuota();
  if (!quota.has_value()) return cpus;
  return std::clamp(static_cast<int>(std::ceil(std::min(*quota, 1e6))), 1, cpus);
}

}  // namespace attend

// How many CPUs this process may really use.
#ifndef ATTEND_CORE_EXECUTOR_CPU_LIMITS_H_
#define ATTEND_CORE_EXECUTOR_CPU_LIMITS_H_

#include <optional>

#include "absl/strings/string_view.h"

namespace attend {

// min(CPUs in the affinity mask, ceil(CFS quota of the cgroup)), at least 1. A container's quota is
// in no way visible in the number of cores, and more threads than quota stall each other.
int UsableCpus();

// The quota in CPUs of a cgroup v2 "cpu.max" text, such as "150000 100000" (1.5) or "max 100000"
// (none). Nothing for a text that cannot be read.
std::optional<double> ParseCpuMax(absl::string_view text);

// The quota of the cgroup (v2, or v1) that this process is in; nothing if there is none.
std::optional<double> CgroupCpuQuota();

}  // namespace attend

#endif  // ATTEND_CORE_EXECUTOR_CPU_LIMITS_H_

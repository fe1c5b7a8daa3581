#include "core/simd/target.h"

#include "hwy/highway.h"

namespace attend {

namespace {

// The targets that this build has and this CPU can run, best first (lower bits are better).
std::vector<std::int64_t> AvailableTargets() {
  hwy::DisableTargets(0);
  std::vector<std::int64_t> targets;
  std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS;
  while (left != 0) {
    const std::int64_t best = left & -left;
    targets.push_back(best);
    left ^= best;
  }
  return targets;
}

}  // namespace

std::string SimdTarget() {
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

std::vector<std::string> SimdTargets() {
  const std::string in_use = SimdTarget();
  std::vector<std::string> names;
  for (const std::int64_t target : AvailableTargets()) names.emplace_back(hwy::TargetName(target));
  ForceSimdTarget(in_use);
  return names;
}

bool ForceSimdTarget(absl::string_view name) {
  for (const std::int64_t target : AvailableTargets()) {
    if (name != hwy::TargetName(target)) continue;
    // All better ones are the lower bits.
    hwy::DisableTargets(target - 1);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return true;
  }
  return false;
}

}  // namespace attend

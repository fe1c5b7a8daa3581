#include "core/simd/target.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/simd/target.cc"
// foreach_target.h includes this file again for each target, so it stands before what it repeats.
// clang-format off
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {

// Told by what runs, not by what Highway says that it would run.
std::int64_t TargetInUse() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {

HWY_EXPORT(TargetInUse);

namespace {

std::int64_t TargetInUse() { return HWY_DYNAMIC_DISPATCH(TargetInUse)(); }

// All better ones are the lower bits. Highway forgets a choice when it is asked what it supports
// (SupportedTargets chooses the best again), so nothing may ask it after this.
void Use(std::int64_t target) {
  hwy::DisableTargets(target - 1);
  const std::int64_t targets = hwy::SupportedTargets();
  hwy::GetChosenTarget().Update(targets);
}

// The targets that this build has and this CPU can run, best first (lower bits are better).
std::vector<std::int64_t> AvailableTargets() {
  const std::int64_t in_use = TargetInUse();
  hwy::DisableTargets(0);
  std::vector<std::int64_t> targets;
  std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS;
  while (left != 0) {
    const std::int64_t best = left & -left;
    targets.push_back(best);
    left ^= best;
  }
  Use(in_use);
  return targets;
}

}  // namespace

std::string SimdTarget() { return hwy::TargetName(TargetInUse()); }

std::vector<std::string> SimdTargets() {
  std::vector<std::string> names;
  for (const std::int64_t target : AvailableTargets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

bool ForceSimdTarget(absl::string_view name) {
  for (const std::int64_t target : AvailableTargets()) {
    if (name != hwy::TargetName(target)) continue;
    Use(target);
    return true;
  }
  return false;
}

}  // namespace attend
#endif  // HWY_ONCE

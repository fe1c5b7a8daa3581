// The instruction set that the SIMD passes run on.
#ifndef ATTEND_CORE_SIMD_TARGET_H_
#define ATTEND_CORE_SIMD_TARGET_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attend {

// Name of the instruction set in use, such as "AVX2" or "AVX3_ZEN4". Thread-safety: safe from any
// thread.
std::string SimdTarget();

// Names of all that this build has and this CPU can run, best first. Like ForceSimdTarget, only for
// tests, before any pass runs in another thread: another one is in use for a moment.
std::vector<std::string> SimdTargets();

// Makes one of SimdTargets() the one in use; false for another name. For tests, and before any pass
// runs in another thread.
bool ForceSimdTarget(absl::string_view name);

}  // namespace attend

#endif  // ATTEND_CORE_SIMD_TARGET_H_

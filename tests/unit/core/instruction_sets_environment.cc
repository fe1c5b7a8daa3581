// Makes a test program run on the instruction sets that the environment names, and proves it:
//   ATTEND_SIMD_TARGET  one of SimdTargets(); all tests are skipped where this CPU lacks it
//   ONEDNN_MAX_CPU_ISA  read by oneDNN itself: SSE41, AVX or AVX2
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "core/simd/target.h"

namespace attend::testing {
namespace {

class InstructionSetsEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    if (const char* isa = std::getenv("ONEDNN_MAX_CPU_ISA")) ExpectOneDnnUsesAtMost(isa);
    const char* target = std::getenv("ATTEND_SIMD_TARGET");
    if (target == nullptr) return;
    if (!ForceSimdTarget(target)) GTEST_SKIP() << "this CPU or build lacks " << target;
    ASSERT_EQ(SimdTarget(), target);
  }

 private:
  static void ExpectOneDnnUsesAtMost(const std::string& isa) {
    const std::map<std::string, dnnl::cpu_isa> known = {{"SSE41", dnnl::cpu_isa::sse41},
                                                        {"AVX", dnnl::cpu_isa::avx},
                                                        {"AVX2", dnnl::cpu_isa::avx2}};
    ASSERT_TRUE(known.contains(isa)) << isa;
    // A better instruction set has all bits of a lesser one.
    const auto allowed = static_cast<unsigned>(known.at(isa));
    const auto in_use = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    ASSERT_EQ(in_use & ~allowed, 0u);
  }
};

// Owned by GoogleTest.
const ::testing::Environment* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new InstructionSetsEnvironment);

}  // namespace
}  // namespace attend::testing

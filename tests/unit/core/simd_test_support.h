// Tests of SIMD passes: each runs on every instruction set that this build has and this CPU can
// run.
#ifndef ATTEND_TESTS_UNIT_CORE_SIMD_TEST_SUPPORT_H_
#define ATTEND_TESTS_UNIT_CORE_SIMD_TEST_SUPPORT_H_

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "core/base/aligned_buffer.h"
#include "core/simd/target.h"

namespace attend::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Its parameter is the target that the passes run on.
class SimdTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ForceSimdTarget(GetParam()));
    ASSERT_EQ(SimdTarget(), GetParam());
  }
  void TearDown() override { ASSERT_TRUE(ForceSimdTarget(before_)); }

 private:
  const std::string before_ = SimdTarget();
};

inline std::string TargetOfTest(const ::testing::TestParamInfo<std::string>& test) {
  return test.param;
}

// Floats at an address that is a multiple of 64 bytes, with 16 on each side that nobody may write.
class GuardedRow {
 public:
  explicit GuardedRow(std::int64_t size) : size_(size), buffer_(size + 2 * kGuard) {
    std::fill_n(buffer_.data(), size + 2 * kGuard, kMark);
  }

  float* data() { return buffer_.data() + kGuard; }
  float& operator[](std::int64_t i) { return data()[i]; }

  void Assign(const std::vector<float>& values) { std::copy(values.begin(), values.end(), data()); }
  std::vector<float> values() { return {data(), data() + size_}; }

  bool GuardsAreIntact() {
    for (std::int64_t i = 0; i < kGuard; ++i) {
      if (buffer_.data()[i] != kMark || data()[size_ + i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 16;
  static constexpr float kMark = -12345.5f;

  std::int64_t size_;
  AlignedBuffer buffer_;
};

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_SIMD_TEST_SUPPORT_H_

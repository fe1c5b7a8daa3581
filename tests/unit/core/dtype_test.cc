#include "core/base/dtype.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace attend {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// What a half or bfloat16 means, from its fields alone, in float64.
double Meaning(std::uint16_t bits, int mantissa_bits, int bias) {
  const int exponent_mask = (1 << (15 - mantissa_bits)) - 1;
  const int exponent = (bits >> mantissa_bits) & exponent_mask;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == exponent_mask) return mantissa == 0 ? sign * kInfinity : kNaN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

double HalfMeaning(std::uint16_t bits) { return Meaning(bits, 10, 15); }
double BrainMeaning(std::uint16_t bits) { return Meaning(bits, 7, 127); }

// Whether a and b are equal, signs of zero included, or both NaN.
bool Same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

TEST(DTypeTest, ReadsAll65536Halves) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    ASSERT_TRUE(Same(Float16ToFloat(half), HalfMeaning(half))) << std::hex << bits;
  }
}

TEST(DTypeTest, ReadsAll65536BFloat16s) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto brain = static_cast<std::uint16_t>(bits);
    ASSERT_TRUE(Same(BFloat16ToFloat(brain), BrainMeaning(brain))) << std::hex << bits;
  }
}

TEST(DTypeTest, EveryHalfAndBFloat16SurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);
    if (!std::isnan(Float16ToFloat(word))) {
      ASSERT_EQ(FloatToFloat16(Float16ToFloat(word)), word) << std::hex << bits;
    }
    if (!std::isnan(BFloat16ToFloat(word))) {
      ASSERT_EQ(FloatToBFloat16(BFloat16ToFloat(word)), word) << std::hex << bits;
    }
  }
}

TEST(DTypeTest, NaNsStayNaNs) {
  for (const std::uint32_t bits :
       {0x7f800001u, 0x7f80ffffu, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(nan)))) << std::hex << bits;
    EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(nan)))) << std::hex << bits;
  }
}

// Between each pair of neighbours: the midpoint goes to the even one, and the floats beside the
// midpoint to the nearer one. Every midpoint is a float, since a float has more mantissa bits.
template <typename Read, typename Write>
void CheckRoundingBetweenNeighbours(std::uint32_t largest_finite, Read read, Write write) {
  for (std::uint32_t low = 0; low < largest_finite; ++low) {
    const std::uint32_t high = low + 1;
    const double midpoint = (static_cast<double>(read(low)) + static_cast<double>(read(high))) / 2;
    const auto tie = static_cast<float>(midpoint);
    ASSERT_EQ(static_cast<double>(tie), midpoint);
    const std::uint32_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(write(tie), even) << std::hex << low;
    ASSERT_EQ(write(-tie), even | 0x8000u) << std::hex << low;
    ASSERT_EQ(write(std::nextafter(tie, 0.0f)), low) << std::hex << low;
    ASSERT_EQ(write(std::nextafter(tie, kInfinity)), high) << std::hex << low;
  }
}

TEST(DTypeTest, RoundsToTheNearestHalfTiesToEven) {
  CheckRoundingBetweenNeighbours(
      0x7bff, [](std::uint32_t bits) { return HalfMeaning(static_cast<std::uint16_t>(bits)); },
      FloatToFloat16);
}

TEST(DTypeTest, RoundsToTheNearestBFloat16TiesToEven) {
  CheckRoundingBetweenNeighbours(
      0x7f7f, [](std::uint32_t bits) { return BrainMeaning(static_cast<std::uint16_t>(bits)); },
      FloatToBFloat16);
}

TEST(DTypeTest, OverflowGivesInfinity) {
  EXPECT_EQ(FloatToFloat16(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToFloat16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToFloat16(65520.0f), 0x7c00);  // a tie, whose even side is infinity
  EXPECT_EQ(FloatToFloat16(-65520.0f), 0xfc00);
  EXPECT_EQ(FloatToFloat16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(FloatToFloat16(kInfinity), 0x7c00);
  EXPECT_EQ(FloatToFloat16(-kInfinity), 0xfc00);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x7f7f7fffu)), 0x7f7f);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x7f7f8000u)), 0x7f80);  // a tie likewise
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(FloatToBFloat16(-kInfinity), 0xff80);
}

TEST(DTypeTest, UnderflowKeepsTheSign) {
  EXPECT_EQ(FloatToFloat16(0x1p-25f), 0x0000);  // a tie between zero and the least half
  EXPECT_EQ(FloatToFloat16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(FloatToFloat16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(FloatToFloat16(-0.0f), 0x8000);
  EXPECT_EQ(FloatToBFloat16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(FloatToBFloat16(-0.0f), 0x8000);
}

TEST(DTypeTest, LoadsAndStoresAtAnyAddress) {  // C14
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (std::size_t misalignment = 0; misalignment < 8; ++misalignment) {
      std::vector<std::byte> memory(16, std::byte{0xaa});
      StoreFloat(dtype, memory.data() + misalignment, -1.5f);
      EXPECT_EQ(LoadFloat(dtype, memory.data() + misalignment), -1.5f);
      for (std::size_t i = 0; i < memory.size(); ++i) {
        const bool written = i >= misalignment && i < misalignment + SizeOf(dtype);
        EXPECT_EQ(memory[i] == std::byte{0xaa}, !written) << Name(dtype) << " " << i;
      }
    }
  }
}

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(SizeOf(DType::kFloat32), 4u);
  EXPECT_EQ(SizeOf(DType::kBFloat16), 2u);
  EXPECT_EQ(SizeOf(DType::kFloat16), 2u);
  EXPECT_EQ(SizeOf(DType::kBool), 1u);
  EXPECT_EQ(SizeOf(DType::kInt8), 1u);
  EXPECT_EQ(SizeOf(DType::kInt64), 8u);
  EXPECT_EQ(Name(DType::kBFloat16), "BFLOAT16");
  EXPECT_EQ(Name(DType::kBool), "BOOL");
}

TEST(DTypeTest, OnlyFloatsAreFloats) {
  EXPECT_TRUE(IsFloat(DType::kFloat32));
  EXPECT_TRUE(IsFloat(DType::kBFloat16));
  EXPECT_TRUE(IsFloat(DType::kFloat16));
  EXPECT_FALSE(IsFloat(DType::kBool));
  EXPECT_FALSE(IsFloat(DType::kInt8));
  EXPECT_FALSE(IsFloat(DType::kInt64));
}

}  // namespace
}  // namespace attend

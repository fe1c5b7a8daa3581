// Rows of elements to float32 and back, on every instruction set, against the conversions of
// dtype.h, element by element.
#include "core/simd/convert.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "core/base/dtype.h"
#include "tests/unit/core/simd_test_support.h"

namespace attend::testing {
namespace {

constexpr DType kFloats[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

class LoadRowTest : public SimdTest {};
class StoreRowTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, LoadRowTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);
INSTANTIATE_TEST_SUITE_P(On, StoreRowTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

// Equal bits, or both NaN.
bool Same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

std::vector<std::byte> Bytes(DType dtype, const std::vector<float>& values,
                             std::size_t misalignment) {
  std::vector<std::byte> bytes(misalignment + values.size() * SizeOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    StoreFloat(dtype, bytes.data() + misalignment + i * SizeOf(dtype), values[i]);
  }
  return bytes;
}

std::vector<float> Random(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// --- Loading ------------------------------------------------------------------------------------

TEST_P(LoadRowTest, ConvertsEveryPatternOf16Bits) {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  const auto* source = reinterpret_cast<const std::byte*>(patterns.data());
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<float> target(65536);
    EXPECT_FALSE(LoadRow(dtype, source, 65536, target.data()));
    for (std::size_t i = 0; i < target.size(); ++i) {
      ASSERT_TRUE(Same(target[i], LoadFloat(dtype, source + 2 * i))) << Name(dtype) << " " << i;
    }
  }
}

TEST_P(LoadRowTest, CopiesFloat32Exactly) {
  std::vector<float> values = {0.0f, -0.0f, 1e-45f, -1e-45f, 0x1p-126f, 3.4e38f, -3.4e38f};
  values.resize(37, 1.5f);
  std::vector<float> target(values.size());
  EXPECT_TRUE(LoadRow(DType::kFloat32, reinterpret_cast<const std::byte*>(values.data()), 37,
                      target.data()));
  EXPECT_EQ(std::memcmp(target.data(), values.data(), 37 * 4), 0);
}

TEST_P(LoadRowTest, WorksForEveryCountAtEveryAddress) {  // pitfalls C14
  for (const DType dtype : kFloats) {
    for (std::size_t misalignment = 0; misalignment < 8; ++misalignment) {
      for (std::int64_t count = 0; count <= 67; ++count) {
        const std::vector<float> values = Random(static_cast<std::size_t>(count), 3);
        const std::vector<std::byte> bytes = Bytes(dtype, values, misalignment);
        GuardedRow target(count);
        ASSERT_TRUE(LoadRow(dtype, bytes.data() + misalignment, count, target.data()));
        ASSERT_TRUE(target.GuardsAreIntact()) << count;
        for (std::int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(target[i], LoadFloat(dtype, bytes.data() + misalignment +
                                                    static_cast<std::size_t>(i) * SizeOf(dtype)));
        }
      }
    }
  }
}

TEST_P(LoadRowTest, FindsTheOneThatIsNotFinite) {
  for (const DType dtype : kFloats) {
    for (const float bad : {kNaN, -kNaN, kInf, -kInf}) {
      for (std::int64_t count = 1; count <= 40; ++count) {
        for (std::int64_t at = 0; at < count; ++at) {
          std::vector<float> values(static_cast<std::size_t>(count), 65504.0f);
          values[static_cast<std::size_t>(at)] = bad;
          const std::vector<std::byte> bytes = Bytes(dtype, values, 0);
          std::vector<float> target(values.size());
          ASSERT_FALSE(LoadRow(dtype, bytes.data(), count, target.data())) << count << " " << at;
          // What comes after the row is not asked.
          ASSERT_TRUE(LoadRow(dtype, bytes.data(), at, target.data()));
        }
      }
    }
  }
}

// --- Storing ------------------------------------------------------------------------------------

// Stores `values` times `factor` and compares with one element at a time.
void ExpectStored(DType dtype, const std::vector<float>& values, float factor) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> target(values.size() * SizeOf(dtype));
  StoreRow(dtype, values.data(), factor, count, target.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte expected[4];
    StoreFloat(dtype, expected, values[i] * factor + 0.0f);  // -0 + 0 is 0
    const float stored = LoadFloat(dtype, target.data() + i * SizeOf(dtype));
    ASSERT_TRUE(Same(stored, LoadFloat(dtype, expected)))
        << Name(dtype) << " of " << values[i] << " * " << factor << " is " << stored;
  }
}

TEST_P(StoreRowTest, KeepsEveryValueOf16Bits) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<float> values(65536);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto pattern = static_cast<std::uint16_t>(i);
      values[i] = LoadFloat(dtype, reinterpret_cast<const std::byte*>(&pattern));
    }
    ExpectStored(dtype, values, 1);
    ExpectStored(dtype, values, 0.3f);
    ExpectStored(dtype, values, 1e30f);
    ExpectStored(dtype, values, 1e-30f);
  }
}

TEST_P(StoreRowTest, ZerosAndNaNsHaveNoSign) {
  std::vector<float> values = {0.0f, -0.0f};
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu}) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(std::bit_cast<float>(bits | 0x80000000u));
  }
  values.resize(16, -0.0f);
  values.insert(values.end(), {-0.0f, -kNaN, -0.0f});  // more than whole vectors
  for (const DType dtype : kFloats) {
    const std::size_t size = SizeOf(dtype);
    std::vector<std::byte> target(values.size() * size);
    StoreRow(dtype, values.data(), 0.5f, static_cast<std::int64_t>(values.size()), target.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::byte expected[4];
      StoreFloat(dtype, expected, values[i] == 0 ? 0.0f : OneNan(values[i]));
      ASSERT_EQ(std::memcmp(target.data() + i * size, expected, size), 0)
          << Name(dtype) << " " << i;
    }
  }
}

TEST_P(StoreRowTest, RoundsAroundEveryMidpointToEven) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<float> values;
    for (std::uint32_t i = 0; i < 65535; ++i) {
      const std::uint16_t patterns[] = {static_cast<std::uint16_t>(i),
                                        static_cast<std::uint16_t>(i + 1)};
      const auto* bytes = reinterpret_cast<const std::byte*>(patterns);
      const double low = LoadFloat(dtype, bytes);
      const double high = LoadFloat(dtype, bytes + 2);
      // The last finite value of FLOAT16 rounds to infinity from half a step on, here 16.
      const double upper =
          std::isinf(high) && dtype == DType::kFloat16 ? low * 65536 / 65504 : high;
      const auto middle = static_cast<float>((low + upper) / 2);
      for (const float value : {middle, std::nextafter(middle, kInf), std::nextafter(middle, -kInf),
                                static_cast<float>(low)}) {
        values.push_back(value);
      }
    }
    ExpectStored(dtype, values, 1);
  }
}

TEST_P(StoreRowTest, OverflowGivesInfinityAndNaNStaysNaN) {
  ExpectStored(DType::kFloat16, std::vector<float>(17, 65519.99f), 1);
  ExpectStored(DType::kFloat16, std::vector<float>(17, 65520.0f), 1);
  ExpectStored(DType::kBFloat16, std::vector<float>(17, 3.4e38f), 1);
  // A NaN whose upper half alone would be an infinity.
  const float low_nan = std::bit_cast<float>(0x7f800001u);
  for (const DType dtype : kFloats) {
    for (const float value : {kNaN, -kNaN, low_nan, kInf, -kInf}) {
      ExpectStored(dtype, std::vector<float>(19, value), 1);
    }
    ExpectStored(dtype, std::vector<float>(19, kInf), 0);  // NaN
  }
}

TEST_P(StoreRowTest, WorksForEveryCountAtEveryAddress) {
  constexpr std::byte kMark{0xa5};
  for (const DType dtype : kFloats) {
    for (std::size_t misalignment = 0; misalignment < 8; ++misalignment) {
      for (std::size_t count = 0; count <= 67; ++count) {
        const std::vector<float> values = Random(count, 4);
        std::vector<std::byte> target(misalignment + count * SizeOf(dtype) + 64, kMark);
        std::byte* begin = target.data() + misalignment;
        StoreRow(dtype, values.data(), 0.7f, static_cast<std::int64_t>(count), begin);
        for (std::size_t i = 0; i < target.size(); ++i) {
          const bool inside = i >= misalignment && i < misalignment + count * SizeOf(dtype);
          if (!inside) {
            ASSERT_EQ(target[i], kMark) << i;
          }
        }
        for (std::size_t i = 0; i < count; ++i) {
          std::byte expected[4];
          StoreFloat(dtype, expected, values[i] * 0.7f);
          ASSERT_EQ(std::memcmp(begin + i * SizeOf(dtype), expected, SizeOf(dtype)), 0) << count;
        }
      }
    }
  }
}

// --- Cleaning -----------------------------------------------------------------------------------

TEST(ZeroNonFinite, SetsWhatIsNotFiniteToZeroAndKeepsTheRest) {
  GuardedRow row(7);
  row.Assign({1, kNaN, -3.4e38f, kInf, -kInf, 1e-45f, -0.0f});
  ZeroNonFinite(row.data(), 7);
  EXPECT_EQ(row.values(), (std::vector<float>{1, 0, -3.4e38f, 0, 0, 1e-45f, -0.0f}));
  EXPECT_TRUE(row.GuardsAreIntact());
}

}  // namespace
}  // namespace attend::testing

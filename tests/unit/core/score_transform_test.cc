// TransformScores on every instruction set, against double precision, and the choice of the set.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/simd/softmax_pass.h"
#include "core/simd/target.h"
#include "tests/unit/core/simd_test_support.h"

namespace attend::testing {
namespace {

TEST(SimdTarget, IsTheBestUnlessForced) {
  const std::vector<std::string> targets = SimdTargets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(SimdTarget(), targets.front());
}

TEST(SimdTarget, CanBeForcedToEachAndToNoOther) {
  const std::string before = SimdTarget();
  for (const std::string& target : SimdTargets()) {
    EXPECT_TRUE(ForceSimdTarget(target));
    EXPECT_EQ(SimdTarget(), target);
    EXPECT_FALSE(ForceSimdTarget("AVX9"));
    EXPECT_FALSE(ForceSimdTarget(""));
    EXPECT_FALSE(SimdTargets().empty());
    EXPECT_EQ(SimdTarget(), target);  // asking undoes no choice
  }
  EXPECT_TRUE(ForceSimdTarget(before));
  EXPECT_EQ(SimdTarget(), before);
}

class TransformScoresTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, TransformScoresTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

constexpr std::int64_t kColumns = 80;

std::vector<float> Products(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 8);
  std::vector<float> products(kColumns);
  for (float& product : products) product = normal(random);
  return products;
}

// One logit in double precision, and how far float32 may be from it: every operation rounds once,
// and tanh is within 4 units in the last place.
struct Logit {
  double value;
  double bound;
};
Logit Expected(const ScoreTransform& t, double product, std::int64_t j) {
  double s = product * t.scale;
  double bound = 0x1p-23 * std::abs(s);
  if (t.softcap > 0) {
    s = t.softcap * std::tanh(s / t.softcap);
    bound = 0x1p-20 * std::abs(s);
  }
  const double alibi = t.alibi_slope * std::abs(static_cast<double>(t.position) - j);
  const double bias = t.bias == nullptr ? 0 : t.bias[j];
  bound += 0x1p-23 * (std::abs(alibi) + std::abs(s) + std::abs(bias));
  return {s - alibi + bias, bound + 0x1p-23 * std::abs(s - alibi)};
}

void ExpectTransformed(const ScoreTransform& transform, std::int64_t begin, std::int64_t end) {
  const std::vector<float> products = Products(static_cast<std::uint32_t>(begin * 100 + end));
  GuardedRow row(kColumns);
  row.Assign(products);
  bool any = false;
  const bool any_visible = TransformScores(transform, begin, end, row.data());
  ASSERT_TRUE(row.GuardsAreIntact());
  for (std::int64_t j = begin; j < end; ++j) {
    if (transform.bias != nullptr && transform.bias[j] == -kInf) {
      ASSERT_EQ(row[j], -kInf) << j;
      continue;
    }
    any = true;
    const Logit expected = Expected(transform, products[j], j);
    ASSERT_NEAR(row[j], expected.value, expected.bound) << j;
  }
  ASSERT_EQ(any_visible, any) << begin << " " << end;
}

TEST_P(TransformScoresTest, ComputesEveryCombinationOfOptions) {
  GuardedRow bias(kColumns);
  bias.Assign(Products(99));
  for (std::int64_t j = 0; j < kColumns; j += 7) bias[j] = -kInf;
  for (const float scale : {1.0f, 0.125f, 0.0f, -3.0f, 1e-35f}) {
    for (const float softcap : {0.0f, 0.5f, 2.0f, 50.0f}) {
      for (const float slope : {0.0f, 0.25f, -0.1f}) {
        for (const float position : {0.0f, -1000.0f, 37.0f, 5000.0f}) {
          for (const float* b : std::vector<const float*>{nullptr, bias.data()}) {
            const ScoreTransform transform{scale, softcap, slope, position, b};
            ExpectTransformed(transform, 0, kColumns);
            ExpectTransformed(transform, 17, 62);
          }
        }
      }
    }
  }
}

TEST_P(TransformScoresTest, WorksOnEveryRangeOfColumns) {
  GuardedRow bias(kColumns);
  for (std::int64_t j = 0; j < kColumns; ++j) bias[j] = j % 3 == 0 ? -kInf : 0.5f;
  for (std::int64_t begin = 0; begin < kColumns; ++begin) {
    for (std::int64_t end = begin + 1; end <= kColumns; ++end) {
      ExpectTransformed({0.5f, 0, 0.1f, 3, nullptr}, begin, end);
      ExpectTransformed({0.5f, 2, 0, 0, bias.data()}, begin, end);
    }
  }
}

TEST_P(TransformScoresTest, SeesNothingWhereTheBiasExcludesAllInRange) {
  GuardedRow bias(kColumns);
  std::fill_n(bias.data(), kColumns, 0.0f);
  std::fill_n(bias.data() + 10, 20, -kInf);
  GuardedRow row(kColumns);
  ScoreTransform transform;
  transform.bias = bias.data();
  for (const auto& [begin, end, sees] : std::vector<std::tuple<std::int64_t, std::int64_t, bool>>{
           {10, 30, false}, {11, 12, false}, {9, 30, true}, {10, 31, true}, {9, 10, true}}) {
    row.Assign(Products(1));
    EXPECT_EQ(TransformScores(transform, begin, end, row.data()), sees) << begin << " " << end;
  }
}

TEST_P(TransformScoresTest, ExcludesWhateverTheProductIs) {  // pitfalls A32, A34
  GuardedRow bias(kColumns);
  std::fill_n(bias.data(), kColumns, -kInf);
  for (const float product : {kNaN, -kNaN, kInf, -kInf, 3e38f}) {
    GuardedRow row(kColumns);
    std::fill_n(row.data(), kColumns, product);
    EXPECT_FALSE(TransformScores({2, 5, 0.5f, 3, bias.data()}, 0, kColumns, row.data()));
    EXPECT_EQ(row.values(), std::vector<float>(kColumns, -kInf)) << product;
  }
}

TEST_P(TransformScoresTest, KeepsAVisibleNaN) {
  GuardedRow bias(kColumns);
  std::fill_n(bias.data(), kColumns, 1.0f);
  for (const float softcap : {0.0f, 5.0f}) {
    for (const float* b : std::vector<const float*>{nullptr, bias.data()}) {
      GuardedRow row(kColumns);
      std::fill_n(row.data(), kColumns, kNaN);
      EXPECT_TRUE(TransformScores({2, softcap, 0.5f, 3, b}, 0, kColumns, row.data()));
      for (const float s : row.values()) EXPECT_TRUE(std::isnan(s));
    }
  }
}

TEST_P(TransformScoresTest, SoftcapBoundsWhateverIsLarge) {
  for (const float product : {1e3f, 1e10f, 3e38f, kInf}) {
    for (const float sign : {1.0f, -1.0f}) {
      GuardedRow row(kColumns);
      std::fill_n(row.data(), kColumns, sign * product);
      TransformScores({1, 30, 0, 0, nullptr}, 0, kColumns, row.data());
      EXPECT_EQ(row.values(), std::vector<float>(kColumns, sign * 30)) << product;
    }
  }
}

TEST_P(TransformScoresTest, TinySoftcapsAreSoftcapsToo) {
  GuardedRow row(kColumns);
  std::fill_n(row.data(), kColumns, 2.0f);
  TransformScores({1, 1e-40f, 0, 0, nullptr}, 0, kColumns, row.data());
  for (const float s : row.values()) EXPECT_NEAR(s, 1e-40f, 1e-45f);
}

TEST_P(TransformScoresTest, MostNegativeFiniteBiasIsNoExclusion) {  // pitfalls A7
  GuardedRow bias(kColumns);
  std::fill_n(bias.data(), kColumns, std::numeric_limits<float>::lowest());
  GuardedRow row(kColumns);
  row.Assign(Products(2));
  ScoreTransform transform;
  transform.bias = bias.data();
  EXPECT_TRUE(TransformScores(transform, 0, kColumns, row.data()));
  for (const float s : row.values()) EXPECT_EQ(s, std::numeric_limits<float>::lowest());
}

}  // namespace
}  // namespace attend::testing

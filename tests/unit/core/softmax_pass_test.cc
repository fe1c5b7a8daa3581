// The passes over a tile of scores, on every instruction set, against double precision.
#include "core/simd/softmax_pass.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <numbers>
#include <random>
#include <vector>

#include "tests/unit/core/simd_test_support.h"

namespace attend::testing {
namespace {

constexpr float kLog2E = std::numbers::log2e_v<float>;
constexpr SoftmaxRow kFresh{.maximum = -kInf, .sum = 0};

// A step of one row.
float Step(float factor, std::int64_t begin, std::int64_t end, std::int64_t columns, float* row,
           SoftmaxRow& state) {
  const ColumnRange range{begin, end};
  float correction = 0;
  SoftmaxStep(factor, 1, columns, &range, row, &state, &correction);
  return correction;
}

std::vector<float> Scores(std::int64_t count, std::uint32_t seed, float sigma = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> scores(count);
  for (float& score : scores) score = normal(random);
  return scores;
}

// The header's bound on a weight 2^x: relative, of the two roundings of x and of the power; what is
// below 2^-126 may be 0.
double WeightBound(double x) {
  if (x < -200) return 0x1p-126;
  return 0x1p-23 * (std::abs(x) + 1) * std::exp2(x) * 1.01 + 0x1p-126;
}

// Checks one step from a fresh state against double precision; the row outside of [begin, end)
// holds NaN before.
void ExpectStep(const std::vector<float>& scores, std::int64_t begin, std::int64_t end,
                float factor) {
  const auto columns = static_cast<std::int64_t>(scores.size());
  GuardedRow row(columns);
  std::fill_n(row.data(), columns, kNaN);
  std::copy(scores.begin() + begin, scores.begin() + end, row.data() + begin);
  SoftmaxRow state = kFresh;
  const float correction = Step(factor, begin, end, columns, row.data(), state);
  ASSERT_TRUE(row.GuardsAreIntact());
  if (begin == end) {
    ASSERT_EQ(correction, 1);
    ASSERT_EQ(state.maximum, -kInf);
    ASSERT_EQ(state.sum, 0);
    ASSERT_EQ(row.values(), std::vector<float>(columns));
    return;
  }
  const float maximum = *std::max_element(scores.begin() + begin, scores.begin() + end);
  ASSERT_EQ(state.maximum, maximum);
  ASSERT_EQ(correction, 0);  // what came before had nothing
  double sum = 0;
  double sum_bound = 0;
  for (std::int64_t j = 0; j < columns; ++j) {
    if (j < begin || j >= end) {
      ASSERT_EQ(row[j], 0) << j;
      continue;
    }
    const double x = static_cast<double>(factor) * (static_cast<double>(scores[j]) - maximum);
    ASSERT_NEAR(row[j], std::exp2(x), WeightBound(x)) << j;
    sum += std::exp2(x);
    sum_bound += WeightBound(x);
  }
  ASSERT_NEAR(state.sum, sum, sum_bound + sum * 0x1p-24 * static_cast<double>(columns / 4 + 4));
}

class SoftmaxStepTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, SoftmaxStepTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

TEST_P(SoftmaxStepTest, WeighsEveryRangeOfColumns) {
  const std::vector<float> scores = Scores(80, 1);
  for (std::int64_t begin = 0; begin <= 80; ++begin) {
    for (std::int64_t end = begin; end <= 80; ++end) ExpectStep(scores, begin, end, kLog2E);
  }
}

TEST_P(SoftmaxStepTest, WeighsTilesOfEveryWidth) {
  for (std::int64_t columns = 16; columns <= 512; columns += 16) {
    const std::vector<float> scores = Scores(columns, static_cast<std::uint32_t>(columns));
    ExpectStep(scores, 0, columns, kLog2E);
    ExpectStep(scores, columns - 1, columns, kLog2E);
    ExpectStep(scores, 0, 1, kLog2E);
    ExpectStep(scores, 3, columns - 5, kLog2E / 8);
  }
}

TEST_P(SoftmaxStepTest, AppliesItsFactor) {
  for (const float factor : {1e-30f, 0.01f, 1.0f, 20.0f, 1e30f}) {
    ExpectStep(Scores(64, 5), 2, 61, factor);
  }
}

TEST_P(SoftmaxStepTest, PowerOfTwoIsWithinItsBoundOverItsWholeRange) {
  // From a maximum of 0 and by a factor of 1, the weight of x is 2^x, x unrounded.
  constexpr std::uint32_t kLast = std::bit_cast<std::uint32_t>(-126.0f);
  constexpr std::uint32_t kStride = 997;
  constexpr std::int64_t kColumns = 512;
  GuardedRow row(kColumns);
  double worst = 0;
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(-0.0f); bits <= kLast;) {
    std::vector<float> x(kColumns, -126.0f);
    for (float& value : x) {
      if (bits <= kLast) value = std::bit_cast<float>(bits);
      bits += kStride;
    }
    row.Assign(x);
    SoftmaxRow state{.maximum = 0, .sum = 0};
    ASSERT_EQ(Step(1, 0, kColumns, kColumns, row.data(), state), 1);
    ASSERT_EQ(state.maximum, 0);
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const double exact = std::exp2(static_cast<double>(x[j]));
      worst = std::max(worst, std::abs(row[j] - exact) / exact);
    }
  }
  EXPECT_LE(worst, 0x1p-23);
  RecordProperty("worst_relative_error_in_2_to_minus_24", std::to_string(worst * 0x1p24));
}

TEST_P(SoftmaxStepTest, WeightsBelowTheSmallestNormalAreZero) {
  GuardedRow row(16);
  const float below = std::nextafter(-126.0f, -kInf);
  row.Assign({0, -126.0f, below, -127, -149, -150, -1e4f, -1e38f, -kInf, 0, 0, 0, 0, 0, 0, 0});
  SoftmaxRow state = kFresh;
  Step(1, 0, 9, 16, row.data(), state);
  EXPECT_EQ(row[0], 1);
  EXPECT_EQ(row[1], 0x1p-126f);
  for (int j = 2; j < 16; ++j) EXPECT_EQ(row[j], 0) << j;
}

TEST_P(SoftmaxStepTest, SeveralTilesEqualOnePass) {
  for (const bool rising : {true, false}) {
    std::vector<float> scores = Scores(640, 9, 5);
    std::sort(scores.begin(), scores.end());
    if (!rising) std::reverse(scores.begin(), scores.end());
    SoftmaxRow state = kFresh;
    std::vector<double> weights;
    for (std::int64_t first = 0; first < 640; first += 64) {
      GuardedRow row(64);
      row.Assign({scores.begin() + first, scores.begin() + first + 64});
      const double correction = Step(kLog2E, 0, 64, 64, row.data(), state);
      for (double& weight : weights) weight *= correction;
      for (const float weight : row.values()) weights.push_back(weight);
    }
    const double maximum = *std::max_element(scores.begin(), scores.end());
    ASSERT_EQ(state.maximum, static_cast<float>(maximum));
    double sum = 0;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const double x = static_cast<double>(kLog2E) * (scores[j] - maximum);
      // Each of the ten steps rounds its own difference and power; the differences add up to x.
      ASSERT_NEAR(weights[j], std::exp2(x), WeightBound(x) + 10 * 0x1p-22 * std::exp2(x)) << j;
      sum += std::exp2(x);
    }
    EXPECT_NEAR(state.sum, sum, sum * 0x1p-23 * 64);
  }
}

TEST_P(SoftmaxStepTest, MinusInfinityHasNoWeight) {
  std::vector<float> scores = Scores(64, 3);
  for (std::size_t j = 0; j < scores.size(); j += 3) scores[j] = -kInf;
  ExpectStep(scores, 0, 64, kLog2E);
  ExpectStep(scores, 6, 8, kLog2E);
}

TEST_P(SoftmaxStepTest, TileOfMinusInfinityChangesNothing) {  // pitfalls A5
  for (const SoftmaxRow before : {kFresh, SoftmaxRow{.maximum = 2, .sum = 3}}) {
    GuardedRow row(64);
    std::fill_n(row.data(), 64, -kInf);
    SoftmaxRow state = before;
    EXPECT_EQ(Step(kLog2E, 5, 60, 64, row.data(), state), 1);
    EXPECT_EQ(state.maximum, before.maximum);
    EXPECT_EQ(state.sum, before.sum);
    EXPECT_EQ(row.values(), std::vector<float>(64));
  }
}

TEST_P(SoftmaxStepTest, NaNOrPlusInfinityAnywhereMakesTheSumNaNForGood) {  // pitfalls A37, A38
  for (const float bad : {kNaN, -kNaN, kInf}) {
    for (std::int64_t at = 5; at < 60; ++at) {
      for (const SoftmaxRow before : {kFresh, SoftmaxRow{.maximum = 2, .sum = 3}}) {
        GuardedRow row(64);
        row.Assign(Scores(64, 4));
        row[at] = bad;
        SoftmaxRow state = before;
        Step(kLog2E, 5, 60, 64, row.data(), state);
        ASSERT_TRUE(std::isnan(state.sum)) << bad << " at " << at;
        row.Assign(Scores(64, 5, 100));
        Step(kLog2E, 0, 64, 64, row.data(), state);
        ASSERT_TRUE(std::isnan(state.sum)) << bad << " at " << at;
      }
    }
  }
}

TEST_P(SoftmaxStepTest, NaNAmongMinusInfinitiesIsNoEmptyRow) {
  for (std::int64_t at = 0; at < 64; ++at) {
    GuardedRow row(64);
    std::fill_n(row.data(), 64, -kInf);
    row[at] = kNaN;
    SoftmaxRow state = kFresh;
    Step(kLog2E, 0, 64, 64, row.data(), state);
    ASSERT_TRUE(std::isnan(state.sum)) << at;
  }
  GuardedRow row(64);
  std::fill_n(row.data(), 64, kNaN);
  SoftmaxRow state = kFresh;
  Step(kLog2E, 0, 64, 64, row.data(), state);
  EXPECT_TRUE(std::isnan(state.sum));
}

TEST_P(SoftmaxStepTest, WhatLiesOutsideTheColumnsChangesNoBit) {  // pitfalls A32
  std::vector<float> results[3];
  const float fills[] = {0, kNaN, kInf};
  for (int i = 0; i < 3; ++i) {
    GuardedRow row(64);
    std::fill_n(row.data(), 64, fills[i]);
    const std::vector<float> scores = Scores(64, 6);
    std::copy(scores.begin() + 7, scores.begin() + 50, row.data() + 7);
    SoftmaxRow state = kFresh;
    Step(kLog2E, 7, 50, 64, row.data(), state);
    results[i] = row.values();
    results[i].push_back(state.sum);
    results[i].push_back(state.maximum);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// Rows that see all, some and none, of numbers of every kind, and so many that they do not fill a
// group.
TEST_P(SoftmaxStepTest, RowsOfATileAreAsTheyAreAlone) {
  constexpr std::int64_t kColumns = 64;
  for (const std::int64_t rows : {1, 2, 7, 8, 9, 31}) {
    GuardedRow tile(rows * kColumns);
    std::vector<float> scores = Scores(rows * kColumns, static_cast<std::uint32_t>(rows));
    for (std::int64_t r = 2; r < rows; r += 3) {
      const float odd[] = {kNaN, kInf, -kInf};
      std::fill_n(scores.begin() + r * kColumns + 10, r % 2 == 0 ? kColumns - 10 : 1,
                  odd[r / 3 % 3]);
    }
    std::copy(scores.begin(), scores.end(), tile.data());
    std::vector<ColumnRange> ranges(rows);
    std::vector<SoftmaxRow> states(rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      ranges[r] = {r % 5, kColumns - 13 * (r % 6)};
      states[r] = r % 3 == 0 ? kFresh : SoftmaxRow{.maximum = 1, .sum = 2};
    }
    const std::vector<SoftmaxRow> before = states;
    std::vector<float> corrections(rows);
    SoftmaxStep(kLog2E, rows, kColumns, ranges.data(), tile.data(), states.data(),
                corrections.data());
    ASSERT_TRUE(tile.GuardsAreIntact());
    for (std::int64_t r = 0; r < rows; ++r) {
      GuardedRow row(kColumns);
      std::copy_n(scores.begin() + r * kColumns, kColumns, row.data());
      SoftmaxRow state = before[r];
      const float correction =
          Step(kLog2E, ranges[r].begin, ranges[r].end, kColumns, row.data(), state);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(corrections[r]),
                std::bit_cast<std::uint32_t>(correction))
          << r;
      ASSERT_EQ(std::memcmp(&states[r], &state, sizeof(state)), 0) << r;
      ASSERT_EQ(std::memcmp(row.data(), tile.data() + r * kColumns, kColumns * sizeof(float)), 0)
          << r;
    }
  }
}

TEST_P(SoftmaxStepTest, GivesTheSameBitsAgain) {
  std::vector<float> first;
  for (int repetition = 0; repetition < 3; ++repetition) {
    GuardedRow row(512);
    row.Assign(Scores(512, 8));
    SoftmaxRow state = kFresh;
    Step(kLog2E, 1, 511, 512, row.data(), state);
    std::vector<float> result = row.values();
    result.push_back(state.sum);
    if (repetition == 0) first = result;
    EXPECT_EQ(first, result);
  }
}

// --- Scaling rows -------------------------------------------------------------------------------

class AddToScaledRowsTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, AddToScaledRowsTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

TEST_P(AddToScaledRowsTest, ScalesEachRowByItsOwnFactorAndAdds) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kColumns = 48;
  const float factors[kRows] = {1, 0.5f, 0};
  GuardedRow sums(kRows * kColumns);
  GuardedRow terms(kRows * kColumns);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    sums[i] = static_cast<float>(i % 7) - 3;
    terms[i] = static_cast<float>(i % 5) * 0.25f;
  }
  std::vector<float> expected;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    expected.push_back(sums[i] * factors[i / kColumns] + terms[i]);
  }
  AddToScaledRows(factors, kRows, kColumns, terms.data(), sums.data());
  EXPECT_EQ(sums.values(), expected);
  EXPECT_TRUE(sums.GuardsAreIntact());
}

TEST_P(AddToScaledRowsTest, KeepsNaNInItsRowAndTouchesNoMoreRowsThanAsked) {
  GuardedRow sums(3 * 16);
  GuardedRow terms(3 * 16);
  sums.Assign(std::vector<float>(48, 2));
  terms.Assign(std::vector<float>(48, 1));
  terms[20] = kNaN;
  const float factors[] = {1, 1, 1};
  AddToScaledRows(factors, 2, 16, terms.data(), sums.data());
  for (std::int64_t i = 0; i < 48; ++i) {
    if (i == 20) {
      EXPECT_TRUE(std::isnan(sums[i]));
    } else {
      EXPECT_EQ(sums[i], i < 32 ? 3 : 2) << i;
    }
  }
}

class ScaleRowsTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, ScaleRowsTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

TEST_P(ScaleRowsTest, MultipliesEachRowByItsOwnFactor) {
  for (const std::int64_t columns : {16, 48, 1024}) {
    const std::vector<float> factors = {0.5f, 1.0f, 0.0f, 0.1f, 1.0f, 3.7e-20f, -2.0f};
    const auto rows = static_cast<std::int64_t>(factors.size());
    const std::vector<float> values = Scores(rows * columns, 7);
    GuardedRow matrix(rows * columns);
    matrix.Assign(values);
    ScaleRows(factors.data(), rows, columns, matrix.data());
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      ASSERT_EQ(matrix[i], values[i] * factors[i / columns]) << i;
    }
    EXPECT_TRUE(matrix.GuardsAreIntact());
  }
}

TEST_P(ScaleRowsTest, KeepsNaNInItsRowAndTouchesNoMoreRowsThanAsked) {
  GuardedRow matrix(3 * 16);
  std::fill_n(matrix.data(), 48, 2.0f);
  matrix[5] = kNaN;
  matrix[6] = kInf;
  const float factors[] = {0.0f, 0.5f};
  ScaleRows(factors, 2, 16, matrix.data());
  for (int i = 0; i < 48; ++i) {
    const bool poisoned = i == 5 || i == 6;
    EXPECT_EQ(std::isnan(matrix[i]), poisoned) << i;
    if (!poisoned) {
      EXPECT_EQ(matrix[i], i < 16 ? 0 : i < 32 ? 1 : 2) << i;
    }
  }
}

TEST_P(ScaleRowsTest, NoRowsAreNoWork) {
  GuardedRow matrix(16);
  ScaleRows(nullptr, 0, 16, matrix.data());
  EXPECT_TRUE(matrix.GuardsAreIntact());
}

}  // namespace
}  // namespace attend::testing

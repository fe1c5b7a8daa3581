// Products of a few rows with rows of keys or values, on every instruction set, against double
// precision.
#include "core/simd/row_products.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/core/simd_test_support.h"

namespace attend::testing {
namespace {

constexpr DType kFloats[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr std::int64_t kCounts[] = {0, 1, 2, 31, 32, 33, 64, 100};
constexpr std::int64_t kMostRows = 16;
constexpr float kUntouched = -7;

std::vector<float> Random(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Integers that every dtype holds and whose products add up exactly in float32, in any order.
std::vector<float> SmallIntegers(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> integer(-8, 8);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(integer(random));
  return values;
}

// Rows as they may lie in a request: at an odd address, with NaN between them, and nothing behind
// the last element, so that an address sanitizer sees whatever reads on.
class Source {
 public:
  Source(DType dtype, std::int64_t count, std::int64_t columns, std::span<const float> values,
         std::int64_t gap = 3, std::int64_t misalignment = 1)
      : dtype_(dtype), count_(count), columns_(columns), misalignment_(misalignment) {
    stride_ = (columns + gap) * size();
    const std::int64_t bytes = count == 0 ? 0 : (count - 1) * stride_ + columns * size();
    data_.assign(misalignment + bytes, std::byte{0xff});  // NaN in every dtype
    for (std::int64_t j = 0; j < count; ++j) {
      for (std::int64_t c = 0; c < columns; ++c) {
        StoreFloat(dtype, data_.data() + OffsetOf(j, c), values[j * columns + c]);
      }
    }
  }

  SourceRows rows() const { return Part(0, count_); }
  SourceRows Part(std::int64_t begin, std::int64_t end) const {
    return {data_.data() + misalignment_ + begin * stride_, stride_, end - begin, dtype_};
  }
  float at(std::int64_t j, std::int64_t c) const {
    return LoadFloat(dtype_, data_.data() + OffsetOf(j, c));
  }
  void Set(std::int64_t j, std::int64_t c, float value) {
    StoreFloat(dtype_, data_.data() + OffsetOf(j, c), value);
  }

  // The same elements as float32, side by side.
  Source InFloat32() const {
    std::vector<float> values;
    for (std::int64_t j = 0; j < count_; ++j) {
      for (std::int64_t c = 0; c < columns_; ++c) values.push_back(at(j, c));
    }
    return {DType::kFloat32, count_, columns_, values, /*gap=*/0, /*misalignment=*/0};
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(SizeOf(dtype_)); }
  std::int64_t OffsetOf(std::int64_t j, std::int64_t c) const {
    return misalignment_ + j * stride_ + c * size();
  }

  DType dtype_;
  std::int64_t count_;
  std::int64_t columns_;
  std::int64_t misalignment_;
  std::int64_t stride_ = 0;
  std::vector<std::byte> data_;
};

GuardedRow Guarded(const std::vector<float>& values) {
  GuardedRow row(static_cast<std::int64_t>(values.size()));
  row.Assign(values);
  return row;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// What a sum of n products in float32 may lose, in whatever order: each product takes at most one
// rounding of its own and n of the sums that it is part of.
double SumBound(std::int64_t n, double magnitude) {
  return static_cast<double>(n + 1) * 0x1p-24 * 1.01 * magnitude;
}

// --- Scores -------------------------------------------------------------------------------------

class ScoreRowsTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, ScoreRowsTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

// The scores [rows, stride], of which none but `keys.count` in each row is touched.
std::vector<float> Scores(const SourceRows& keys, std::int64_t columns, std::int64_t rows,
                          const std::vector<float>& queries, std::int64_t stride) {
  GuardedRow aligned = Guarded(queries);
  GuardedRow scores = Guarded(std::vector<float>(rows * stride, kUntouched));
  ScoreRows(keys, columns, rows, aligned.data(), stride, scores.data());
  EXPECT_TRUE(scores.GuardsAreIntact());
  EXPECT_EQ(aligned.values(), queries);
  for (std::int64_t i = 0; i < rows * stride; ++i) {
    if (i % stride < keys.count) continue;
    EXPECT_EQ(scores[i], kUntouched) << i;
  }
  return scores.values();
}

void ExpectScores(const Source& keys, std::int64_t columns, std::int64_t rows,
                  const std::vector<float>& queries, bool exact) {
  const std::int64_t count = keys.rows().count;
  const std::int64_t stride = count + 5;
  const std::vector<float> scores = Scores(keys.rows(), columns, rows, queries, stride);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < count; ++j) {
      double score = 0;
      double magnitude = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const double product = static_cast<double>(queries[r * columns + c]) * keys.at(j, c);
        score += product;
        magnitude += std::abs(product);
      }
      const double bound = exact ? 0 : SumBound(columns, magnitude);
      ASSERT_NEAR(scores[r * stride + j], score, bound)
          << rows << " rows of " << columns << ", row " << r << ", key " << j << " of " << count;
    }
  }
}

TEST_P(ScoreRowsTest, AreTheProductsForEveryNumberOfRowsAndKeys) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(std::string(Name(dtype)));
    for (const std::int64_t count : kCounts) {
      const Source keys(dtype, count, 48, Random(count * 48, 1));
      for (std::int64_t rows = 1; rows <= kMostRows; ++rows) {
        ExpectScores(keys, 48, rows, Random(rows * 48, 2), /*exact=*/false);
      }
    }
  }
}

TEST_P(ScoreRowsTest, AreTheProductsForEveryNumberOfColumns) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(std::string(Name(dtype)));
    for (std::int64_t columns = 16; columns <= 1024; columns += columns < 256 ? 16 : 384) {
      const Source keys(dtype, 5, columns, Random(5 * columns, 3));
      for (const std::int64_t rows : {1, 4, 7}) {
        ExpectScores(keys, columns, rows, Random(rows * columns, 4), /*exact=*/false);
      }
    }
  }
}

TEST_P(ScoreRowsTest, OfSmallIntegersAreExact) {
  for (const DType dtype : kFloats) {
    for (const std::int64_t columns : {16, 80, 1024}) {
      const Source keys(dtype, 33, columns, SmallIntegers(33 * columns, 5));
      ExpectScores(keys, columns, 7, SmallIntegers(7 * columns, 6), /*exact=*/true);
    }
  }
}

TEST_P(ScoreRowsTest, HaveTheSameBitsAtEveryAddressAndStride) {
  constexpr std::int64_t kColumns = 80;
  const std::vector<float> queries = Random(7 * kColumns, 7);
  for (const DType dtype : kFloats) {
    const std::vector<float> values = Random(33 * kColumns, 8);
    const Source plain(dtype, 33, kColumns, values);
    const std::vector<float> expected = Scores(plain.rows(), kColumns, 7, queries, 40);
    for (std::int64_t misalignment = 0; misalignment < 8; ++misalignment) {
      for (const std::int64_t gap : {0, 1, 16}) {
        const Source keys(dtype, 33, kColumns, values, gap, misalignment);
        EXPECT_TRUE(SameBits(Scores(keys.rows(), kColumns, 7, queries, 40), expected))
            << Name(dtype) << " gap " << gap << " at " << misalignment;
      }
    }
  }
}

TEST_P(ScoreRowsTest, HaveBitsThatDependOnNoOtherKeyAndNoCount) {
  constexpr std::int64_t kColumns = 48;
  constexpr std::int64_t kRows = 7;
  constexpr std::int64_t kKeys = 67;
  const std::vector<float> queries = Random(kRows * kColumns, 9);
  const Source keys(DType::kBFloat16, kKeys, kColumns, Random(kKeys * kColumns, 10));
  const std::vector<float> together = Scores(keys.rows(), kColumns, kRows, queries, kKeys);
  for (std::int64_t begin = 0; begin < kKeys; ++begin) {
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, kKeys - begin}) {
      if (begin + count > kKeys) continue;
      const std::vector<float> part =
          Scores(keys.Part(begin, begin + count), kColumns, kRows, queries, count);
      for (std::int64_t r = 0; r < kRows; ++r) {
        ASSERT_EQ(
            std::memcmp(&part[r * count], &together[r * kKeys + begin], count * sizeof(float)), 0)
            << count << " keys from " << begin << ", row " << r;
      }
    }
  }
}

TEST_P(ScoreRowsTest, KeepWhatIsNotFiniteInItsKey) {
  constexpr std::int64_t kColumns = 32;
  const std::vector<float> queries = Random(5 * kColumns, 11);
  for (const DType dtype : kFloats) {
    Source keys(dtype, 33, kColumns, Random(33 * kColumns, 12));
    const std::vector<float> clean = Scores(keys.rows(), kColumns, 5, queries, 33);
    for (const auto& [key, poison] :
         {std::pair{3, kNaN}, std::pair{16, kInf}, std::pair{32, -kInf}}) {
      keys.Set(key, key % kColumns, poison);
    }
    const std::vector<float> scores = Scores(keys.rows(), kColumns, 5, queries, 33);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::size_t key = i % 33;
      const bool poisoned = key == 3 || key == 16 || key == 32;
      EXPECT_TRUE(poisoned ? !std::isfinite(scores[i]) : scores[i] == clean[i]) << i;
    }
  }
}

// --- Weighted values ----------------------------------------------------------------------------

class WeighRowsTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, WeighRowsTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

// `terms` [rows, columns] with the weighted values added, for weights [rows, stride].
std::vector<float> Weighed(const SourceRows& values, std::int64_t columns, std::int64_t rows,
                           const std::vector<float>& weights, std::int64_t stride,
                           const std::vector<float>& terms) {
  GuardedRow sums = Guarded(terms);
  WeighRows(values, columns, rows, stride, weights.data(), sums.data());
  EXPECT_TRUE(sums.GuardsAreIntact());
  return sums.values();
}

void ExpectWeighed(const Source& values, std::int64_t columns, std::int64_t rows,
                   const std::vector<float>& weights, const std::vector<float>& terms, bool exact) {
  const std::int64_t count = values.rows().count;
  const std::int64_t stride = static_cast<std::int64_t>(weights.size()) / rows;
  const std::vector<float> sums = Weighed(values.rows(), columns, rows, weights, stride, terms);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      double sum = terms[r * columns + c];
      double magnitude = std::abs(sum);
      for (std::int64_t j = 0; j < count; ++j) {
        const double product = static_cast<double>(weights[r * stride + j]) * values.at(j, c);
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(sums[r * columns + c], sum, exact ? 0 : SumBound(count, magnitude))
          << rows << " rows of " << columns << ", row " << r << ", column " << c << ", " << count
          << " values";
    }
  }
}

// Weights [rows, count + 3], NaN behind the first `count` of each row.
std::vector<float> Weights(std::int64_t rows, std::int64_t count, const std::vector<float>& from) {
  std::vector<float> weights(rows * (count + 3), kNaN);
  for (std::int64_t i = 0; i < rows * count; ++i)
    weights[i / count * (count + 3) + i % count] = from[i];
  return weights;
}

TEST_P(WeighRowsTest, AddTheirSumsForEveryNumberOfRowsAndValues) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(std::string(Name(dtype)));
    for (const std::int64_t count : kCounts) {
      const Source values(dtype, count, 48, Random(count * 48, 1));
      for (std::int64_t rows = 1; rows <= kMostRows; ++rows) {
        const std::vector<float> weights = Weights(rows, count, Random(rows * count, 2));
        ExpectWeighed(values, 48, rows, weights, Random(rows * 48, 3), /*exact=*/false);
      }
    }
  }
}

TEST_P(WeighRowsTest, AddTheirSumsForEveryNumberOfColumns) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(std::string(Name(dtype)));
    for (std::int64_t columns = 16; columns <= 1024; columns += columns < 256 ? 16 : 384) {
      const Source values(dtype, 5, columns, Random(5 * columns, 4));
      for (const std::int64_t rows : {1, 4, 7}) {
        const std::vector<float> weights = Weights(rows, 5, Random(rows * 5, 5));
        ExpectWeighed(values, columns, rows, weights, Random(rows * columns, 6), /*exact=*/false);
      }
    }
  }
}

TEST_P(WeighRowsTest, OfSmallIntegersAreExact) {
  for (const DType dtype : kFloats) {
    for (const std::int64_t columns : {16, 80, 1024}) {
      const Source values(dtype, 100, columns, SmallIntegers(100 * columns, 7));
      const std::vector<float> weights = Weights(7, 100, SmallIntegers(700, 8));
      ExpectWeighed(values, columns, 7, weights, SmallIntegers(7 * columns, 9), /*exact=*/true);
    }
  }
}

TEST_P(WeighRowsTest, HaveTheSameBitsAtEveryAddressStrideAndDType) {
  constexpr std::int64_t kColumns = 80;
  const std::vector<float> terms = Random(7 * kColumns, 10);
  const std::vector<float> weights = Random(7 * 33, 11);
  for (const DType dtype : kFloats) {
    const std::vector<float> from = Random(33 * kColumns, 12);
    const Source plain = Source(dtype, 33, kColumns, from).InFloat32();
    const std::vector<float> expected = Weighed(plain.rows(), kColumns, 7, weights, 33, terms);
    for (std::int64_t misalignment = 0; misalignment < 8; ++misalignment) {
      for (const std::int64_t gap : {0, 1, 16}) {
        const Source values(dtype, 33, kColumns, from, gap, misalignment);
        EXPECT_TRUE(SameBits(Weighed(values.rows(), kColumns, 7, weights, 33, terms), expected))
            << Name(dtype) << " gap " << gap << " at " << misalignment;
      }
    }
  }
}

// The same values in one call, and in calls of a few each.
void ExpectSameBitsHoweverCut(const Source& values, std::int64_t columns, std::int64_t rows) {
  const std::int64_t count = values.rows().count;
  const std::vector<float> weights = Random(rows * count, 14);
  const std::vector<float> terms(rows * columns);
  const std::vector<float> whole = Weighed(values.rows(), columns, rows, weights, count, terms);
  for (const std::int64_t step : {1, 7, 32, 50, 64, 96}) {
    std::vector<float> sums = terms;
    for (std::int64_t j = 0; j < count; j += step) {
      const std::vector<float> rest(weights.begin() + j, weights.end());
      sums = Weighed(values.Part(j, std::min(j + step, count)), columns, rows, rest, count, sums);
    }
    EXPECT_TRUE(SameBits(sums, whole)) << columns << " columns in steps of " << step;
  }
}

TEST_P(WeighRowsTest, HaveTheSameBitsHoweverTheyAreCut) {
  constexpr std::int64_t kValues = 100;
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(std::string(Name(dtype)));
    for (const std::int64_t columns : {16, 48, 144}) {
      const Source values(dtype, kValues, columns, Random(kValues * columns, 13));
      for (const std::int64_t rows : {1, 4, 7}) ExpectSameBitsHoweverCut(values, columns, rows);
    }
  }
}

TEST_P(WeighRowsTest, KeepWhatIsNotFiniteInItsColumnWhateverTheWeight) {
  constexpr std::int64_t kColumns = 48;
  for (const DType dtype : kFloats) {
    for (const float poison : {kNaN, kInf, -kInf}) {
      for (const float weight : {0.0f, 1e-45f, 1.0f}) {
        Source values(dtype, 33, kColumns, Random(33 * kColumns, 15));
        values.Set(32, 21, poison);
        std::vector<float> weights = Random(5 * 33, 16);
        for (std::int64_t r = 0; r < 5; ++r) weights[r * 33 + 32] = weight;
        const std::vector<float> sums =
            Weighed(values.rows(), kColumns, 5, weights, 33, std::vector<float>(5 * kColumns));
        for (std::int64_t i = 0; i < 5 * kColumns; ++i) {
          EXPECT_EQ(std::isfinite(sums[i]), i % kColumns != 21) << poison << " " << weight;
        }
      }
    }
  }
}

// --- Finite or not ------------------------------------------------------------------------------

class AllFiniteTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, AllFiniteTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

TEST_P(AllFiniteTest, SeesEveryPosition) {
  for (const std::int64_t count : {16, 48, 80}) {
    GuardedRow row = Guarded(Random(count, 1));
    ASSERT_TRUE(AllFinite(row.data(), count));
    for (std::int64_t i = 0; i < count; ++i) {
      const float before = row[i];
      for (const float poison : {kNaN, -kNaN, kInf, -kInf}) {
        row[i] = poison;
        EXPECT_FALSE(AllFinite(row.data(), count)) << poison << " at " << i;
      }
      row[i] = before;
    }
  }
}

TEST_P(AllFiniteTest, TakesTheLargestAndTheSmallestForFinite) {
  using Limits = std::numeric_limits<float>;
  for (const float finite : {Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min(),
                             -Limits::denorm_min(), 1e-40f, 0.0f, -0.0f}) {
    GuardedRow row = Guarded(std::vector<float>(48, 1));
    for (std::int64_t i = 0; i < 48; ++i) {
      row[i] = finite;
      EXPECT_TRUE(AllFinite(row.data(), 48)) << finite << " up to " << i;
    }
  }
}

TEST_P(AllFiniteTest, IsNotFooledByInfinitiesThatCancel) {
  GuardedRow row = Guarded(std::vector<float>(64, 1));
  row[3] = kInf;
  row[19] = -kInf;
  EXPECT_FALSE(AllFinite(row.data(), 64));
}

TEST_P(AllFiniteTest, LooksAtNoMoreThanItIsAsked) {
  GuardedRow row = Guarded(std::vector<float>(32, kNaN));
  std::fill_n(row.data(), 16, 1.0f);
  EXPECT_TRUE(AllFinite(row.data(), 16));
  EXPECT_TRUE(AllFinite(row.data() + 16, 0));
}

}  // namespace
}  // namespace attend::testing

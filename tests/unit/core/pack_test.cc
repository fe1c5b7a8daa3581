#include "core/simd/pack.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "tests/unit/core/simd_test_support.h"

namespace attend {
namespace {

using testing::GuardedRow;
using testing::SimdTest;
using testing::TargetOfTest;

class PackRowsTest : public SimdTest {};
INSTANTIATE_TEST_SUITE_P(On, PackRowsTest, ::testing::ValuesIn(SimdTargets()), TargetOfTest);

// Each element has a value of its own, so that none can stand in another's place.
GuardedRow MakeRows(std::int64_t columns) {
  GuardedRow rows(kRowBlock * columns);
  for (std::int64_t i = 0; i < kRowBlock * columns; ++i) rows[i] = static_cast<float>(i);
  return rows;
}

TEST_P(PackRowsTest, MovesEveryElementToItsPlace) {
  for (const std::int64_t columns : {8, 16, 64, 80, 1024}) {
    GuardedRow rows = MakeRows(columns);
    GuardedRow dense(kRowBlock * columns);
    GuardedRow blocks(kRowBlock * columns);
    GuardedRow transposed(kRowBlock * columns);
    PackRows(RowForm::kDense, columns, columns, rows.data(), dense.data());
    PackRows(RowForm::kBlocks, columns, columns, rows.data(), blocks.data());
    PackRows(RowForm::kTransposedBlocks, columns, columns, rows.data(), transposed.data());
    EXPECT_EQ(dense.values(), rows.values());
    for (std::int64_t r = 0; r < kRowBlock; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const float expected = rows[r * columns + c];
        ASSERT_EQ(blocks[c / 8 * 64 + r * 8 + c % 8], expected) << r << " " << c;
        ASSERT_EQ(transposed[c / 8 * 64 + c % 8 * 8 + r], expected) << r << " " << c;
      }
    }
    EXPECT_TRUE(dense.GuardsAreIntact());
    EXPECT_TRUE(blocks.GuardsAreIntact());
    EXPECT_TRUE(transposed.GuardsAreIntact());
  }
}

TEST_P(PackRowsTest, ReadsRowsThatLieApartAtAnyAddressOfAFloat) {
  constexpr std::int64_t kColumns = 16;
  constexpr std::int64_t kStride = 21;
  GuardedRow rows(kRowBlock * kStride + 3);
  for (std::int64_t i = 0; i < kRowBlock * kStride + 3; ++i) rows[i] = static_cast<float>(i);
  for (const RowForm form : {RowForm::kDense, RowForm::kBlocks, RowForm::kTransposedBlocks}) {
    GuardedRow dense = MakeRows(kColumns);
    for (std::int64_t r = 0; r < kRowBlock; ++r) {
      for (std::int64_t c = 0; c < kColumns; ++c) {
        dense[r * kColumns + c] = rows[3 + r * kStride + c];
      }
    }
    GuardedRow expected(kRowBlock * kColumns);
    GuardedRow packed(kRowBlock * kColumns);
    PackRows(form, kColumns, kColumns, dense.data(), expected.data());
    EXPECT_TRUE(PackRows(form, kColumns, kStride, rows.data() + 3, packed.data()));
    EXPECT_EQ(packed.values(), expected.values());
    EXPECT_TRUE(packed.GuardsAreIntact());
  }
}

TEST_P(PackRowsTest, TellsWhetherAllAreFinite) {
  constexpr std::int64_t kColumns = 16;
  GuardedRow target(kRowBlock * kColumns);
  for (const RowForm form : {RowForm::kDense, RowForm::kBlocks, RowForm::kTransposedBlocks}) {
    for (std::int64_t i = 0; i < kRowBlock * kColumns; ++i) {
      GuardedRow rows = MakeRows(kColumns);
      rows[i] = std::numeric_limits<float>::max();
      EXPECT_TRUE(PackRows(form, kColumns, kColumns, rows.data(), target.data())) << i;
      for (const float bad : {testing::kInf, -testing::kInf, testing::kNaN}) {
        rows[i] = bad;
        EXPECT_FALSE(PackRows(form, kColumns, kColumns, rows.data(), target.data())) << i;
      }
    }
  }
}

}  // namespace
}  // namespace attend

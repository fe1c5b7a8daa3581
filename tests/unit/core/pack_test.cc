#include "core/simd/pack.h"

#include <cstdint>
#include <gtest/gtest.h>
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
    PackRows(RowForm::kDense, columns, rows.data(), dense.data());
    PackRows(RowForm::kBlocks, columns, rows.data(), blocks.data());
    PackRows(RowForm::kTransposedBlocks, columns, rows.data(), transposed.data());
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

}  // namespace
}  // namespace attend

// Dot products and FLOPs of a request, against counting one by one.
#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "tests/unit/core/attention_rules.h"

namespace attend::testing {
namespace {

std::int64_t CountPairs(const AttentionProblem& problem, const Rules& rules) {
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    const AttentionItem& item = problem.items()[b];
    for (std::int64_t h = 0; h < problem.query_heads(); ++h) {
      for (std::int64_t i = 0; i < item.query_len; ++i) {
        for (std::int64_t j = 0; j < item.kv_len; ++j) {
          bool sees = MaySee(rules, i + item.offset, item.kv_len, j);
          if (sees && problem.block_mask()) {
            const BlockMaskView& mask = *problem.block_mask();
            sees = *mask.blocks.at(b, h, i / mask.query_block_size, j / mask.key_block_size) ==
                   std::byte{1};
          }
          pairs += sees ? 1 : 0;
        }
      }
    }
  }
  return pairs;
}

TEST(Cost, DotProductsAreThePairsOfTheDefinition) {
  for (const Rules& rules : AllRules()) {
    for (const Alignment alignment : {Alignment::kFirst, Alignment::kLast, Alignment::kOffsets}) {
      AttentionArgs args = ShapesOnly({3, 2, 90, 8}, {3, 1, 100, 8}, {3, 1, 100, 6});
      args.query_lengths = {90, 0, 33};
      args.kv_lengths = {70, 100, 99};
      args.options.causal = rules.causal;
      args.options.window_left = rules.left;
      args.options.window_right = rules.right;
      args.options.alignment = alignment;
      if (alignment == Alignment::kOffsets) args.options.query_offsets = {-50, 0, 95};
      const auto problem = AttentionProblem::Create(args);
      ASSERT_TRUE(problem.ok());
      const std::int64_t expected = CountPairs(*problem, rules);
      ASSERT_EQ(problem->dot_products(), expected)
          << "causal " << rules.causal << " left " << rules.left.value_or(-1) << " right "
          << rules.right.value_or(-1);
      ASSERT_EQ(problem->flops(), 2 * (8 + 6) * expected);
    }
  }
}

TEST(Cost, DotProductsLeaveOutBlocksThatAreOff) {
  std::uint32_t seed = 0;
  for (const Rules& rules : AllRules()) {
    for (const Dims& shape :
         std::vector<Dims>{{2, 4}, {1, 4}, {2, 1}, {1}, {2, 1, 1}, {3, 2, 2, 4}, {3, 1, 2, 4}}) {
      AttentionArgs args = ShapesOnly({3, 2, 130, 8}, {3, 1, 200, 8}, {3, 1, 200, 6});
      args.query_lengths = {130, 128, 1};
      args.kv_lengths = {200, 64, 191};
      args.options.causal = rules.causal;
      args.options.window_left = rules.left;
      args.options.window_right = rules.right;
      args.options.alignment = Alignment::kLast;
      const Tensor blocks = Bools(shape, ++seed, 0.5);
      args.options.block_mask = BlockMask{128, 64, blocks.view()};
      const auto problem = AttentionProblem::Create(args);
      ASSERT_TRUE(problem.ok()) << problem.status();
      ASSERT_EQ(problem->dot_products(), CountPairs(*problem, rules)) << ShapeString(shape);
    }
  }
}

TEST(Cost, TwiceTheTokensAreFourTimesTheDotProductsWhateverHeadDim) {  // worked-examples.md
  const auto dot_products = [](std::int64_t tokens, std::int64_t dim) {
    const AttentionArgs args =
        ShapesOnly({1, 1, tokens, dim}, {1, 1, tokens, dim}, {1, 1, tokens, dim});
    return AttentionProblem::Create(args).value().dot_products();
  };
  for (const std::int64_t dim : {1, 64, 1024}) {
    EXPECT_EQ(dot_products(1000, dim), 1'000'000);
    EXPECT_EQ(dot_products(2000, dim), 4'000'000);
  }
  EXPECT_EQ(dot_products(128'000, 64), 16'384'000'000);
}

TEST(Cost, FlopsSaturate) {  // pitfalls A58
  const AttentionArgs args =
      ShapesOnly({1, 1024, 1 << 22, 1024}, {1, 1024, 1 << 22, 1024}, {1, 1024, 1 << 22, 1024});
  const auto problem = AttentionProblem::Create(args);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->dot_products(), std::int64_t{1} << 54);
  EXPECT_EQ(problem->flops(), std::numeric_limits<std::int64_t>::max());
}

// Shapes may come without their bytes, to be estimated: counting one by one would take minutes.
TEST(Cost, IsCountedInTimeThatDoesNotDependOnTheTokens) {
  AttentionArgs args = ShapesOnly({60'000, 1, 1 << 22, 1}, {1, 1, 1 << 22, 1}, {1, 1, 1 << 22, 1});
  args.options.causal = true;
  const auto problem = AttentionProblem::Create(args);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const std::int64_t tokens = 1 << 22;
  EXPECT_EQ(problem->dot_products(), 60'000 * (tokens * (tokens + 1) / 2));
}

TEST(Cost, OfBlocksIsCountedInTimeThatDoesNotDependOnTheTokens) {
  AttentionArgs args = ShapesOnly({1, 64, 1 << 20, 1}, {1, 1, 1 << 20, 1}, {1, 1, 1 << 20, 1});
  args.options.causal = true;
  // 256 x 64 blocks for each head; only those of head 7 are on.
  Tensor blocks = *Tensor::Zeros(DType::kBool, {64, 256, 64});
  std::fill_n(blocks.data.begin() + 7 * 256 * 64, 256 * 64, std::byte{1});
  args.options.block_mask = BlockMask{4096, 16384, blocks.view()};
  const auto problem = AttentionProblem::Create(args);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const std::int64_t tokens = 1 << 20;
  EXPECT_EQ(problem->dot_products(), tokens * (tokens + 1) / 2);
}

}  // namespace
}  // namespace attend::testing

// What a legal request becomes: which keys a row may see, what is counted, where results go.
#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/attention_problem.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {
namespace {

constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// Arguments of which only the shapes count: views that broadcast one element.
AttentionArgs ShapesOnly(Dims query, Dims key, Dims value) {
  static const float kElement = 0;
  const auto view = [](Dims shape) {
    Dims strides(shape.size(), 0);
    return TensorView{DType::kFloat32, std::move(shape), std::move(strides),
                      reinterpret_cast<const std::byte*>(&kElement)};
  };
  AttentionArgs args;
  args.query = view(std::move(query));
  args.key = view(std::move(key));
  args.value = view(std::move(value));
  return args;
}

// --- What is legal ------------------------------------------------------------------------------

TEST(AttentionProblemAccepts, EmptyAxes) {  // pitfalls A40, A41, A43
  for (const Sizes& sizes : std::vector<Sizes>{{0, 4, 2, 3, 5, 8, 6},
                                               {2, 4, 2, 0, 5, 8, 6},
                                               {2, 4, 2, 3, 0, 8, 6},
                                               {0, 4, 2, 0, 0, 8, 6}}) {
    const Request request = MakeRequest(sizes);
    const auto problem = AttentionProblem::Create(request.Args());
    ASSERT_TRUE(problem.ok()) << sizes << problem.status();
    EXPECT_EQ(problem->output_shape(), (Dims{sizes.batch, 4, sizes.query_len, 6})) << sizes;
    EXPECT_EQ(problem->dot_products(), 0) << sizes;
    EXPECT_EQ(problem->flops(), 0) << sizes;
  }
}

TEST(AttentionProblemAccepts, AnEmptyPackedRequest) {
  AttentionArgs args = ShapesOnly({0, 2, 4}, {0, 1, 4}, {0, 1, 3});
  args.layout = Layout::kPacked;
  const auto problem = AttentionProblem::Create(args);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->batch(), 0);
  EXPECT_EQ(problem->output_shape(), (Dims{0, 2, 3}));
}

TEST(AttentionProblemAccepts, EveryFiniteScaleAndTellsZeroFromUnset) {  // pitfalls A91
  Request request = MakeRequest({1, 1, 1, 2, 2, 64, 8});
  EXPECT_EQ(AttentionProblem::Create(request.Args())->scale(), 0.125f);
  for (const float scale : {0.0f, -0.0f, -3.5f, 1e-45f, std::numeric_limits<float>::max()}) {
    request.args.options.scale = scale;
    const auto problem = AttentionProblem::Create(request.Args());
    ASSERT_TRUE(problem.ok()) << scale;
    EXPECT_EQ(problem->scale(), scale);
  }
}

TEST(AttentionProblemAccepts, DefaultScaleIsOneOverTheRootOfHeadDim) {
  for (const std::int64_t dim : {1, 2, 3, 96, 100, 1024}) {
    const Request request = MakeRequest({1, 1, 1, 1, 1, dim, 1});
    EXPECT_EQ(AttentionProblem::Create(request.Args())->scale(),
              static_cast<float>(1 / std::sqrt(static_cast<double>(dim))));
  }
}

TEST(AttentionProblemAccepts, SinksOfMinusInfinityAreNoSinks) {
  Request request = MakeRequest({1, 2, 1, 1, 3, 4, 4});
  EXPECT_EQ(AttentionProblem::Create(request.Args())->sink(1), -kInf);
  request.sinks = Tensor::FromFloats(DType::kFloat32, {2}, std::vector<float>{-kInf, 2});
  const auto problem = AttentionProblem::Create(request.Args());
  ASSERT_TRUE(problem.ok());
  EXPECT_EQ(problem->sink(0), -kInf);
  EXPECT_EQ(problem->sink(1), 2);
}

TEST(AttentionProblemAccepts, SlopesByHeadOrByItemAndHead) {
  Request request = MakeRequest({2, 2, 1, 1, 3, 4, 4});
  EXPECT_FALSE(AttentionProblem::Create(request.Args())->has_alibi());
  request.alibi_slopes = Tensor::FromFloats(DType::kFloat32, {2}, std::vector<float>{1, 2});
  const auto by_head = AttentionProblem::Create(request.Args());
  request.alibi_slopes =
      Tensor::FromFloats(DType::kFloat32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  const auto by_item = AttentionProblem::Create(request.Args());
  ASSERT_TRUE(by_head.ok() && by_item.ok());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(by_head->alibi_slope(b, h), 1 + h);
      EXPECT_EQ(by_item->alibi_slope(b, h), 1 + 2 * b + h);
    }
  }
}

TEST(AttentionProblemAccepts, ExactlyTheLimits) {
  Request request = MakeRequest({2, 4, 2, 3, 5, 8, 6});
  request.args.output.weights = true;
  const AttentionLimits limits{.max_head_dim = 8,
                               .max_value_dim = 6,
                               .max_heads = 4,
                               .max_batch = 2,
                               .max_length = 5,
                               .max_score_elements = 120};
  EXPECT_TRUE(AttentionProblem::Create(request.Args(), limits).ok());
}

TEST(AttentionProblemAccepts, OutputDtypeIsQuerysUnlessAskedOtherwise) {
  Request request = MakeRequest({1, 1, 1, 1, 1, 4, 4, DType::kBFloat16});
  EXPECT_EQ(AttentionProblem::Create(request.Args())->output_dtype(), DType::kBFloat16);
  request.args.output.dtype = DType::kFloat32;
  EXPECT_EQ(AttentionProblem::Create(request.Args())->output_dtype(), DType::kFloat32);
}

// --- Which keys a row may see -------------------------------------------------------------------

struct Rules {
  bool causal;
  std::optional<std::int64_t> left;
  std::optional<std::int64_t> right;
};

// Every combination of causality and windows, narrow, wide and none.
std::vector<Rules> AllRules() {
  std::vector<std::optional<std::int64_t>> windows = {std::nullopt, 0, 1, 3, 70, kMaxInt64};
  std::vector<Rules> rules;
  for (const bool causal : {false, true}) {
    for (const auto& left : windows) {
      for (const auto& right : windows) rules.push_back({causal, left, right});
    }
  }
  return rules;
}

// design.md's rule 4, word for word, for one key.
bool MaySee(const Rules& rules, std::int64_t position, std::int64_t kv_len, std::int64_t key) {
  if (key >= kv_len) return false;
  if (rules.causal && key > position) return false;
  if (rules.left && position - key > *rules.left) return false;
  return !rules.right || key - position <= *rules.right;
}

TEST(VisibleKeys, AreThoseOfTheDefinition) {
  for (const Rules& rules : AllRules()) {
    for (const std::int64_t kv_len : {0, 1, 2, 7}) {
      for (const std::int64_t offset : {-100, -8, -4, -1, 0, 1, 2, 6, 7, 100}) {
        AttentionArgs args = ShapesOnly({1, 1, 9, 1}, {1, 1, 7, 1}, {1, 1, 7, 1});
        args.kv_lengths = {kv_len};
        args.options.causal = rules.causal;
        args.options.window_left = rules.left;
        args.options.window_right = rules.right;
        args.options.alignment = Alignment::kOffsets;
        args.options.query_offsets = {offset};
        const auto problem = AttentionProblem::Create(args);
        ASSERT_TRUE(problem.ok());
        for (std::int64_t row = 0; row < 9; ++row) {
          const KeyRange keys = problem->VisibleKeys(problem->items()[0], row);
          EXPECT_LE(0, keys.begin);
          EXPECT_LE(keys.begin, keys.end);
          EXPECT_LE(keys.end, kv_len);
          for (std::int64_t key = 0; key < 8; ++key) {
            ASSERT_EQ(key >= keys.begin && key < keys.end, MaySee(rules, row + offset, kv_len, key))
                << "causal " << rules.causal << " left " << rules.left.value_or(-1) << " right "
                << rules.right.value_or(-1) << " offset " << offset << " row " << row << " key "
                << key;
          }
        }
      }
    }
  }
}

TEST(VisibleKeys, OffsetsFollowTheAlignmentAndEachItemsOwnLengths) {  // pitfalls A22, A23, A26
  AttentionArgs args = ShapesOnly({3, 1, 4, 1}, {3, 1, 6, 1}, {3, 1, 6, 1});
  args.query_lengths = {4, 2, 3};
  args.kv_lengths = {6, 1, 0};
  const auto offsets = [&] {
    std::vector<std::int64_t> result;
    const auto problem = AttentionProblem::Create(args);
    for (const AttentionItem& item : problem.value().items()) result.push_back(item.offset);
    return result;
  };
  EXPECT_EQ(offsets(), (std::vector<std::int64_t>{0, 0, 0}));
  args.options.alignment = Alignment::kLast;
  EXPECT_EQ(offsets(), (std::vector<std::int64_t>{2, -1, -3}));
  args.options.alignment = Alignment::kOffsets;
  args.options.query_offsets = {-7};
  EXPECT_EQ(offsets(), (std::vector<std::int64_t>{-7, -7, -7}));
  args.options.query_offsets = {1, -2, 3};
  EXPECT_EQ(offsets(), (std::vector<std::int64_t>{1, -2, 3}));
}

TEST(VisibleKeys, FarthestOffsetsAndWidestWindowsDoNotOverflow) {
  AttentionArgs args = ShapesOnly({1, 1, 2, 1}, {1, 1, 5, 1}, {1, 1, 5, 1});
  args.options.alignment = Alignment::kOffsets;
  args.options.window_left = kMaxInt64;
  args.options.window_right = kMaxInt64;
  for (const std::int64_t offset : {-(std::int64_t{1} << 40), std::int64_t{1} << 40}) {
    args.options.query_offsets = {offset};
    const auto problem = AttentionProblem::Create(args);
    const KeyRange keys = problem.value().VisibleKeys(problem->items()[0], 1);
    EXPECT_EQ(keys.begin, 0);
    EXPECT_EQ(keys.end, 5);
  }
}

// --- Costs --------------------------------------------------------------------------------------

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

TEST(Cost, FlopsSaturate) {
  const AttentionArgs args =
      ShapesOnly({1, 1024, 1 << 22, 1024}, {1, 1024, 1 << 22, 1024}, {1, 1024, 1 << 22, 1024});
  const auto problem = AttentionProblem::Create(args);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->dot_products(), std::int64_t{1} << 54);
  EXPECT_EQ(problem->flops(), kMaxInt64);
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

// --- Shapes and places --------------------------------------------------------------------------

TEST(Places, OfOutputsAndLseInEveryLayout) {
  AttentionArgs args = ShapesOnly({2, 4, 3, 8}, {2, 2, 5, 8}, {2, 2, 5, 6});
  const auto heads_first = AttentionProblem::Create(args);
  ASSERT_TRUE(heads_first.ok());
  EXPECT_EQ(heads_first->output_shape(), (Dims{2, 4, 3, 6}));
  EXPECT_EQ(heads_first->lse_shape(), (Dims{2, 4, 3}));
  EXPECT_EQ(heads_first->score_shape(), (Dims{2, 4, 3, 5}));
  EXPECT_EQ(heads_first->OutputOffset(1, 2, 1), ((1 * 4 + 2) * 3 + 1) * 6);
  EXPECT_EQ(heads_first->LseOffset(1, 2, 1), (1 * 4 + 2) * 3 + 1);

  args = ShapesOnly({2, 3, 4, 8}, {2, 5, 2, 8}, {2, 5, 2, 6});
  args.layout = Layout::kBatchLengthHeads;
  const auto length_first = AttentionProblem::Create(args);
  ASSERT_TRUE(length_first.ok());
  EXPECT_EQ(length_first->output_shape(), (Dims{2, 3, 4, 6}));
  EXPECT_EQ(length_first->lse_shape(), (Dims{2, 4, 3}));
  EXPECT_EQ(length_first->score_shape(), (Dims{2, 4, 3, 5}));
  EXPECT_EQ(length_first->OutputOffset(1, 2, 1), ((1 * 3 + 1) * 4 + 2) * 6);
  EXPECT_EQ(length_first->LseOffset(1, 2, 1), (1 * 4 + 2) * 3 + 1);

  args = ShapesOnly({6, 4, 8}, {9, 2, 8}, {9, 2, 6});
  args.layout = Layout::kPacked;
  args.query_lengths = {2, 0, 4};
  args.kv_lengths = {4, 5, 0};
  const auto packed = AttentionProblem::Create(args);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->output_shape(), (Dims{6, 4, 6}));
  EXPECT_EQ(packed->lse_shape(), (Dims{6, 4}));
  EXPECT_EQ(packed->score_shape(), (Dims{3, 4, 4, 5}));
  EXPECT_EQ(packed->OutputOffset(2, 1, 3), ((2 + 3) * 4 + 1) * 6);
  EXPECT_EQ(packed->LseOffset(2, 1, 3), (2 + 3) * 4 + 1);
}

// Value of element (head, row, dim) of an item's view.
float At(const TensorView& view, std::int64_t head, std::int64_t row, std::int64_t dim) {
  return LoadFloat(view.dtype,
                   view.at(head * view.strides[0] + row * view.strides[1] + dim * view.strides[2]));
}

// A view of `shape` over the numbers 0, 1, 2, ... with the strides of a larger tensor.
TensorView Strided(const Tensor& numbers, Dims shape, Dims strides, std::int64_t first) {
  TensorView view = numbers.view();
  view.data = view.at(first);
  view.shape = std::move(shape);
  view.strides = std::move(strides);
  return view;
}

TEST(ItemViews, FollowTheStridesOfTheInput) {  // pitfalls A19, A20, A56
  std::vector<float> numbers(4000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const Tensor tensor = Tensor::FromFloats(DType::kFloat32, {4000}, numbers);
  AttentionArgs args;
  args.layout = Layout::kBatchLengthHeads;
  args.query = Strided(tensor, {2, 3, 4, 8}, {1000, 100, 20, 2}, 5);
  args.key = Strided(tensor, {2, 5, 2, 8}, {0, 50, 8, 1}, 1);       // one key for all items
  args.value = Strided(tensor, {1, 5, 2, 6}, {9, -60, 7, 1}, 300);  // rows backwards
  args.kv_lengths = {5, 4};
  const auto problem = AttentionProblem::Create(args);
  ASSERT_TRUE(problem.ok()) << problem.status();
  for (std::int64_t b = 0; b < 2; ++b) {
    const AttentionItem& item = problem->items()[b];
    EXPECT_EQ(item.query.shape, (Dims{4, 3, 8}));
    EXPECT_EQ(item.key.shape, (Dims{2, 5 - b, 8}));
    EXPECT_EQ(item.value.shape, (Dims{2, 5 - b, 6}));
    EXPECT_EQ(At(item.query, 3, 2, 7), 5 + b * 1000 + 2 * 100 + 3 * 20 + 7 * 2);
    EXPECT_EQ(At(item.key, 1, 3, 6), 1 + 3 * 50 + 8 + 6);
    EXPECT_EQ(At(item.value, 1, 3, 5), 300 - 3 * 60 + 7 + 5);
  }
}

TEST(ItemViews, OfPackedTokensBeginWhereTheItemBegins) {
  std::vector<float> numbers(400);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const Tensor tensor = Tensor::FromFloats(DType::kFloat32, {400}, numbers);
  AttentionArgs args;
  args.layout = Layout::kPacked;
  args.query = Strided(tensor, {6, 4, 2}, {8, 2, 1}, 0);
  args.key = Strided(tensor, {9, 2, 2}, {4, 2, 1}, 0);
  args.value = Strided(tensor, {9, 2, 3}, {6, 3, 1}, 0);
  args.query_lengths = {2, 0, 4};
  args.kv_lengths = {4, 5, 0};
  const auto problem = AttentionProblem::Create(args);
  ASSERT_TRUE(problem.ok());
  EXPECT_EQ(problem->items()[2].first_token, 2);
  EXPECT_EQ(At(problem->items()[2].query, 3, 1, 1), (2 + 1) * 8 + 3 * 2 + 1);
  EXPECT_EQ(At(problem->items()[1].key, 1, 4, 0), (4 + 4) * 4 + 2);
  EXPECT_EQ(At(problem->items()[1].value, 1, 4, 2), (4 + 4) * 6 + 3 + 2);
  EXPECT_EQ(problem->query_len(), 4);
  EXPECT_EQ(problem->kv_len(), 5);
}

}  // namespace
}  // namespace attend::testing

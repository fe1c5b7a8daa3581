// The fast path against the float64 reference: sizes, options and layouts.
#include "core/attention/attention.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/core/attention_check.h"

namespace attend::testing {
namespace {

// --- Sizes -------------------------------------------------------------------------------------

class AttentionSizes : public ::testing::TestWithParam<Sizes> {};

TEST_P(AttentionSizes, MatchesReference) { ExpectMatchesReference(MakeRequest(GetParam())); }

TEST_P(AttentionSizes, MatchesReferenceWhenCausal) {
  for (const Alignment alignment : {Alignment::kFirst, Alignment::kLast}) {
    Request request = MakeRequest(GetParam());
    request.args.options.causal = true;
    request.args.options.alignment = alignment;
    ExpectMatchesReference(request);
  }
}

std::vector<Sizes> SweptSizes() {
  std::vector<Sizes> sizes;
  // Lengths around the steps of 16 and 64 rows and of 64 and 512 keys. pitfalls A40: no keys.
  for (const std::int64_t query_len : {0, 1, 15, 16, 17, 63, 64, 65, 129}) {
    for (const std::int64_t kv_len : {0, 1, 63, 64, 65, 127, 511, 512, 513, 600}) {
      sizes.push_back({1, 2, 1, query_len, kv_len, 8, 8});
    }
  }
  // Whole tiles of queries, read where they lie or, of a head size that needs padding, copied.
  for (const std::int64_t query_len : {63, 64, 65, 128, 130}) {
    for (const std::int64_t dim : {15, 16, 64}) sizes.push_back({2, 3, 3, query_len, 150, dim, 24});
  }
  // pitfalls A50, A52: head sizes that are no multiple of a vector.
  for (const std::int64_t dim : {1,  2,  3,  5,  6,  7,   15,  16,  17,  31,  33,  63,
                                 64, 65, 72, 80, 96, 100, 127, 128, 136, 160, 256, 1024}) {
    sizes.push_back({1, 1, 1, 5, 70, dim, 8});
    sizes.push_back({1, 1, 1, 5, 70, 8, dim});
  }
  sizes.push_back({2, 16, 16, 8, 8, 6, 6});  // pitfalls A52
  // pitfalls A47: ratios of query heads to KV heads.
  for (const auto& [query_heads, kv_heads] :
       std::vector<std::pair<int, int>>{{12, 3}, {28, 4}, {32, 8}, {48, 2}, {71, 1}, {6, 6}}) {
    sizes.push_back({2, query_heads, kv_heads, 3, 20, 4, 4});
  }
  sizes.push_back({0, 2, 2, 4, 4, 8, 8});  // pitfalls A41
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    sizes.push_back({2, 4, 2, 70, 130, 64, 48, dtype});
    sizes.push_back({1, 2, 1, 1, 600, 33, 7, dtype});
  }
  return sizes;
}

INSTANTIATE_TEST_SUITE_P(Swept, AttentionSizes, ::testing::ValuesIn(SweptSizes()),
                         [](const auto& test) {
                           const Sizes& s = test.param;
                           return std::string(Name(s.dtype)) + "_b" + std::to_string(s.batch) +
                                  "_h" + std::to_string(s.query_heads) + "_" +
                                  std::to_string(s.kv_heads) + "_n" + std::to_string(s.query_len) +
                                  "_" + std::to_string(s.kv_len) + "_d" +
                                  std::to_string(s.head_dim) + "_" + std::to_string(s.value_dim);
                         });

// Where floats may lie they are read in place, elsewhere from a copy. A key that is not finite has
// its scores computed from the same queries.
TEST(Attention, GivesTheSameBitsAtAnyAddressOfQueries) {
  Request request = MakeRequest({2, 3, 3, 130, 150, 64, 24});
  request.args.options.causal = true;
  Poison(request.key, 100 * 64 + 5, 1, std::numeric_limits<float>::infinity());
  ExpectMatchesReference(request);
  const Outputs want = MustCompute(request);
  const std::size_t size = request.query.data.size();
  for (const std::size_t offset : {0, 4, 20, 1}) {
    std::vector<std::byte> bytes(size + offset);
    std::copy_n(request.query.data.data(), size, bytes.data() + offset);
    AttentionArgs args = request.Args();
    args.query.data = bytes.data() + offset;
    const auto problem = AttentionProblem::Create(args);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const auto outputs = Compute(*problem);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(outputs->output.data, want.output.data) << offset;
    EXPECT_EQ(outputs->lse.data, want.lse.data) << offset;
  }
}

TEST(Attention, MatchesReferenceAtEveryKeyLengthAroundVectors) {  // pitfalls A20
  for (const std::int64_t query_len : {3, 17}) {
    for (std::int64_t kv_len = 1; kv_len <= 130; ++kv_len) {
      Request request = MakeRequest({2, 1, 1, query_len, kv_len, 8, 8, DType::kBFloat16});
      request.key = ItemOf(request.key, 0);  // one of both for all items
      request.value = ItemOf(request.value, 0);
      request.boolean_mask = Bools({2, 1, query_len, kv_len}, 7, 0.7);
      ExpectMatchesReference(request);
    }
  }
}

// --- Options, one by one and together -----------------------------------------------------------

Request OptionRequest() { return MakeRequest({2, 4, 2, 37, 150, 16, 24}); }

TEST(AttentionOptions, Scale) {
  for (const float scale : {0.0f, -1.0f, 0.01f, 1.0f, 1e-35f}) {  // pitfalls A91
    Request request = OptionRequest();
    request.args.options.scale = scale;
    ExpectMatchesReference(request, Accuracy::kAnyScores);
  }
}

TEST(AttentionOptions, Softcap) {
  for (const float softcap : {0.5f, 2.0f, 50.0f}) {
    Request request = OptionRequest();
    request.args.options.softcap = softcap;
    ExpectMatchesReference(request, Accuracy::kAnyScores);
  }
}

TEST(AttentionOptions, Windows) {  // pitfalls A70
  for (const bool causal : {false, true}) {
    for (const auto& [left, right] : std::vector<std::pair<int, int>>{{0, 0}, {3, 5}, {70, 0}}) {
      Request request = OptionRequest();
      request.args.options.causal = causal;
      request.args.options.alignment = Alignment::kLast;
      request.args.options.window_left = left;
      if (left != 70) request.args.options.window_right = right;
      ExpectMatchesReference(request);
    }
  }
}

TEST(AttentionOptions, HugeWindowsAreNoWindow) {
  Request request = OptionRequest();
  request.args.options.window_left = std::numeric_limits<std::int64_t>::max();
  request.args.options.window_right = std::numeric_limits<std::int64_t>::max();
  ExpectMatchesReference(request);
}

TEST(AttentionOptions, Offsets) {
  Request request = OptionRequest();
  request.args.options.causal = true;
  request.args.options.alignment = Alignment::kOffsets;
  for (const std::vector<std::int64_t>& offsets :
       std::vector<std::vector<std::int64_t>>{{5}, {-20}, {100, -36}, {-1000, 1000}}) {
    request.args.options.query_offsets = offsets;
    ExpectMatchesReference(request);
  }
}

TEST(AttentionOptions, Alibi) {
  Request request = OptionRequest();
  request.alibi_slopes = Normal(DType::kFloat32, {4}, 5, 0.1f);
  ExpectMatchesReference(request, Accuracy::kAnyScores);
  request.alibi_slopes = Normal(DType::kFloat32, {2, 4}, 5, 0.1f);
  request.args.options.alignment = Alignment::kLast;
  ExpectMatchesReference(request, Accuracy::kAnyScores);
}

TEST(AttentionOptions, Sinks) {
  Request request = OptionRequest();
  request.sinks =
      Tensor::FromFloats(DType::kFloat32, {4}, std::vector<float>{0.5f, -kInf, 3e30f, -200.0f});
  request.args.output.weights = true;
  ExpectMatchesReference(request, Accuracy::kAnyScores);
}

TEST(AttentionOptions, BlockMask) {
  Request request = MakeRequest({2, 4, 2, 130, 700, 16, 8});
  request.blocks = Bools({4, 3, 11}, 3, 0.4);
  ExpectMatchesReference(request);
  BlockMask& mask = request.args.options.block_mask.emplace();
  mask.query_block_size = 128;
  mask.key_block_size = 192;
  request.blocks = Bools({2, 1, 2, 4}, 3, 0.5);
  request.args.options.causal = true;
  request.args.options.alignment = Alignment::kLast;
  ExpectMatchesReference(request);
}

TEST(AttentionOptions, MasksBroadcast) {  // pitfalls A16
  for (const Dims& shape : std::vector<Dims>{{150},
                                             {1},
                                             {37, 150},
                                             {37, 1},
                                             {4, 37, 150},
                                             {4, 1, 1},
                                             {2, 1, 37, 150},
                                             {2, 1, 1, 150},
                                             {2, 4, 37, 1},
                                             {1, 4, 1, 150}}) {
    Request request = OptionRequest();
    request.boolean_mask = Bools(shape, 11, 0.6);
    ExpectMatchesReference(request);
    request = OptionRequest();
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      request.additive_mask = Normal(dtype, shape, 12);
      ExpectMatchesReference(request, Accuracy::kAnyScores);
    }
  }
}

// A copy of a mask of four axes in the shape that it broadcasts to.
Tensor Expanded(const Tensor& mask, const Dims& shape) {
  Tensor copy = *Tensor::Zeros(mask.dtype, shape);
  const auto size = static_cast<std::int64_t>(SizeOf(mask.dtype));
  const Dims strides = DenseStrides(mask.shape);
  for (std::int64_t i = 0; i < copy.num_elements(); ++i) {
    std::int64_t from = 0;
    std::int64_t rest = i;
    for (int axis = 3; axis >= 0; --axis) {
      if (mask.shape[axis] != 1) from += rest % shape[axis] * strides[axis];
      rest /= shape[axis];
    }
    std::copy_n(mask.data.begin() + from * size, size, copy.data.begin() + i * size);
  }
  return copy;
}

TEST(AttentionOptions, MasksThatBroadcastGiveTheBitsOfTheirCopies) {  // pitfalls A16
  for (const std::int64_t queries : {5, 20}) {
    const Dims full = {3, 2, queries, 70};
    for (int shared = 0; shared < 16; ++shared) {
      Dims shape = full;
      for (int axis = 0; axis < 4; ++axis) {
        if (((shared >> axis) & 1) != 0) shape[axis] = 1;
      }
      SCOPED_TRACE(ShapeString(shape));
      Request broadcast = MakeRequest({3, 2, 1, queries, 70, 8, 8});
      Request copied = broadcast;
      broadcast.boolean_mask = Bools(shape, 3, 0.7);
      copied.boolean_mask = Expanded(*broadcast.boolean_mask, full);
      ExpectSameBits(broadcast, copied);
      broadcast.additive_mask = Normal(DType::kFloat16, shape, 4);
      copied.additive_mask = Expanded(*broadcast.additive_mask, full);
      ExpectSameBits(broadcast, copied);
    }
  }
}

TEST(AttentionOptions, EachItemAddsItsOwnBias) {  // pitfalls A17
  for (const std::int64_t queries : {5, 20}) {
    Request request = MakeRequest({3, 2, 2, queries, 70, 8, 8});
    request.additive_mask = Normal(DType::kFloat32, {3, 1, queries, 70}, 4);
    const Outputs together = MustCompute(request);
    for (std::int64_t b = 0; b < 3; ++b) {
      Request alone = Alone(request, b);
      alone.additive_mask = ItemOf(*request.additive_mask, b);
      EXPECT_EQ(MustCompute(alone).output.data, ItemOf(together.output, b).data) << b;
    }
  }
}

TEST(AttentionOptions, AdditiveMaskExcludesWithMinusInfinity) {
  Request request = OptionRequest();
  std::vector<float> mask = Normal(DType::kFloat32, {37, 150}, 12).ToFloats();
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (i % 3 == 0 || i / 150 == 7) mask[i] = -kInf;
  }
  request.additive_mask = Tensor::FromFloats(DType::kFloat32, {37, 150}, mask);
  request.args.output = {.lse = true, .weights = true, .scores = ScoreStage::kBiased};
  ExpectMatchesReference(request, Accuracy::kAnyScores);
}

TEST(AttentionOptions, LengthsOfItems) {  // pitfalls A43, A44
  Request request = MakeRequest({5, 2, 2, 40, 130, 16, 8});
  request.args.query_lengths = {40, 0, 1, 17, 39};
  request.args.kv_lengths = {96, 0, 130, 1, 64};
  for (const bool causal : {false, true}) {
    request.args.options.causal = causal;
    request.args.options.alignment = Alignment::kLast;
    request.args.output = {.lse = true, .weights = true, .scores = ScoreStage::kScaled};
    ExpectMatchesReference(request);
  }
}

TEST(AttentionOptions, EveryStageOfScores) {
  for (const ScoreStage stage : {ScoreStage::kScaled, ScoreStage::kCapped, ScoreStage::kBiased}) {
    Request request = MakeRequest({2, 2, 1, 20, 530, 16, 8});
    request.args.options.causal = true;
    request.args.options.softcap = 2;
    request.alibi_slopes = Normal(DType::kFloat32, {2}, 5, 0.1f);
    request.boolean_mask = Bools({1, 2, 20, 530}, 6, 0.5);
    request.args.output = {.lse = true, .weights = true, .scores = stage};
    ExpectMatchesReference(request, Accuracy::kAnyScores);
  }
}

TEST(AttentionOptions, KeysAndValuesSharedByTheBatch) {
  Request request = MakeRequest({3, 2, 1, 5, 40, 8, 8});
  request.key = Normal(DType::kFloat32, {1, 1, 40, 8}, 2);
  request.args.kv_lengths = {40, 3, 0};
  ExpectMatchesReference(request);
  request.value = Normal(DType::kFloat32, {1, 1, 40, 8}, 3);
  ExpectMatchesReference(request);
}

TEST(AttentionOptions, OutputDtypes) {  // pitfalls A61
  for (const DType in : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const DType out : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      Request request = MakeRequest({1, 2, 2, 20, 40, 16, 21, in});
      for (const bool weights : {false, true}) {
        request.args.output = {.dtype = out, .weights = weights};
        ExpectMatchesReference(request);
      }
    }
  }
}

// --- Layouts ------------------------------------------------------------------------------------

TEST(AttentionLayouts, LengthBeforeHeadsGivesTheSameBits) {  // pitfalls A19, A49
  const Request heads_first = OptionRequest();
  Request length_first = heads_first;
  length_first.query = Exchanged(heads_first.query);
  length_first.key = Exchanged(heads_first.key);
  length_first.value = Exchanged(heads_first.value);
  length_first.args.layout = Layout::kBatchLengthHeads;
  ExpectMatchesReference(length_first);
  const auto a = Compute(*AttentionProblem::Create(heads_first.Args()));
  const auto b = Compute(*AttentionProblem::Create(length_first.Args()));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(Exchanged(a->output).data, b->output.data);
  EXPECT_EQ(a->lse.data, b->lse.data);
}

TEST(AttentionLayouts, ViewsIntoOneFusedBufferGiveTheSameBits) {  // pitfalls A19, A56
  constexpr std::int64_t kTokens = 70;
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kDim = 8;
  const Tensor fused = Normal(DType::kFloat32, {1, kTokens, 3 * kHeads, kDim}, 4);
  AttentionArgs args;
  args.layout = Layout::kBatchLengthHeads;
  const Tensor mask = Bools({kHeads, kTokens, kTokens}, 5, 0.7);
  args.boolean_mask = mask.view();
  for (const auto& [view, part] :
       {std::pair{&args.query, 0}, std::pair{&args.key, 1}, std::pair{&args.value, 2}}) {
    *view = fused.view();
    view->shape[2] = kHeads;
    view->data = fused.view().at(part * kHeads * kDim);
  }
  const auto strided = AttentionProblem::Create(args);
  ASSERT_TRUE(strided.ok()) << strided.status();
  std::vector<Tensor> copies;
  for (TensorView* view : {&args.query, &args.key, &args.value}) {
    std::vector<float> values;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t i = 0; i < kHeads * kDim; ++i) {
        values.push_back(LoadFloat(view->dtype, view->at(t * view->strides[1] + i)));
      }
    }
    copies.push_back(Tensor::FromFloats(DType::kFloat32, view->shape, values));
  }
  args.query = copies[0].view();
  args.key = copies[1].view();
  args.value = copies[2].view();
  const auto a = Compute(*strided);
  const auto b = Compute(*AttentionProblem::Create(args));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->output.data, b->output.data);
}

TEST(AttentionLayouts, PackedEqualsEachItemAlone) {  // pitfalls A43
  Request request;
  const std::vector<std::int64_t> query_lengths = {5, 0, 70, 1};
  const std::vector<std::int64_t> kv_lengths = {9, 3, 130, 0};
  request.query = Normal(DType::kFloat32, {76, 4, 16}, 1);
  request.key = Normal(DType::kFloat32, {142, 2, 16}, 2);
  request.value = Normal(DType::kFloat32, {142, 2, 8}, 3);
  request.args.layout = Layout::kPacked;
  request.args.query_lengths = query_lengths;
  request.args.kv_lengths = kv_lengths;
  request.args.options.causal = true;
  request.args.options.alignment = Alignment::kLast;
  request.args.output = {.lse = true, .weights = true, .scores = ScoreStage::kBiased};
  ExpectMatchesReference(request);
}

}  // namespace
}  // namespace attend::testing

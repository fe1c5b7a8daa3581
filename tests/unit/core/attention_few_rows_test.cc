// Items of few rows, whose keys and values are read as they came: against the float64 reference,
// and what is promised of their bits.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/core/attention_check.h"

namespace attend::testing {
namespace {

constexpr DType kFloats[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// --- Sizes --------------------------------------------------------------------------------------

// Sizes of so many rows for each KV head: by queries, by heads of a group, and by both.
std::vector<Sizes> SizesOfRows(std::int64_t rows) {
  std::vector<Sizes> sizes = {{.query_len = rows}, {.query_heads = rows}};
  for (const std::int64_t group : {2, 3, 4, 5}) {
    if (rows % group != 0 || rows == group) continue;
    sizes.push_back({.query_heads = 2 * group, .kv_heads = 2, .query_len = rows / group});
  }
  return sizes;
}

class AttentionFewRows : public ::testing::TestWithParam<int> {};

TEST_P(AttentionFewRows, MatchReference) {
  // Head sizes that can be multiplied as they came, and others, for keys and for values.
  const std::vector<Sizes> of_keys = {{.kv_len = 1, .head_dim = 8, .value_dim = 24},
                                      {.kv_len = 65, .head_dim = 16, .value_dim = 16},
                                      {.kv_len = 530, .head_dim = 32, .value_dim = 33},
                                      {.kv_len = 513, .head_dim = 20, .value_dim = 48}};
  for (Sizes sizes : SizesOfRows(GetParam())) {
    for (const Sizes& keys : of_keys) {
      for (const DType dtype : kFloats) {
        sizes.kv_len = keys.kv_len;
        sizes.head_dim = keys.head_dim;
        sizes.value_dim = keys.value_dim;
        sizes.dtype = dtype;
        SCOPED_TRACE(::testing::PrintToString(sizes));
        ExpectMatchesReference(MakeRequest(sizes));
      }
    }
  }
}

// 17 are no longer few.
INSTANTIATE_TEST_SUITE_P(Rows, AttentionFewRows, ::testing::Values(1, 2, 3, 4, 5, 15, 16, 17),
                         ::testing::PrintToStringParamName());

TEST(AttentionFewRowsSizes, MatchReferenceAtEveryHeadSize) {
  for (const std::int64_t dim : {1, 15, 17, 31, 32, 48, 96, 128, 144, 160, 256, 272, 1024}) {
    SCOPED_TRACE(dim);
    ExpectMatchesReference(MakeRequest({1, 5, 1, 1, 100, dim, 16, DType::kBFloat16}));
    ExpectMatchesReference(MakeRequest({1, 5, 1, 1, 100, 16, dim, DType::kBFloat16}));
  }
}

TEST(AttentionFewRowsSizes, MatchReferenceAtEveryKeyLengthAroundVectors) {
  for (std::int64_t kv_len = 0; kv_len <= 130; ++kv_len) {
    SCOPED_TRACE(kv_len);
    ExpectMatchesReference(MakeRequest({1, 5, 1, 1, kv_len, 16, 16}));
  }
}

// --- Options ------------------------------------------------------------------------------------

class AttentionFewRowsOptions : public ::testing::TestWithParam<Sizes> {
 protected:
  const Sizes& sizes() const { return GetParam(); }
  Request request_ = MakeRequest(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Of, AttentionFewRowsOptions,
                         ::testing::Values(Sizes{2, 4, 2, 3, 600, 32, 16},
                                           Sizes{1, 4, 2, 3, 600, 20, 19, DType::kBFloat16},
                                           Sizes{1, 7, 1, 1, 600, 48, 80, DType::kBFloat16},
                                           Sizes{2, 2, 2, 2, 530, 16, 33, DType::kFloat16}),
                         [](const auto& test) {
                           const Sizes& s = test.param;
                           return std::string(Name(s.dtype)) + "_d" + std::to_string(s.head_dim) +
                                  "_" + std::to_string(s.value_dim);
                         });

TEST_P(AttentionFewRowsOptions, CausalUpToTheLastKey) {
  request_.args.options.causal = true;
  request_.args.options.alignment = Alignment::kLast;
  ExpectMatchesReference(request_);
}

TEST_P(AttentionFewRowsOptions, CausalFromOffsets) {
  request_.args.options.causal = true;
  request_.args.options.alignment = Alignment::kOffsets;
  for (const std::int64_t offset : {-1000, -2, 0, 63, 511, 512, 1000}) {
    request_.args.options.query_offsets = {offset};
    ExpectMatchesReference(request_);
  }
}

TEST_P(AttentionFewRowsOptions, Windows) {  // pitfalls A70
  for (const auto& [left, right] : std::vector<std::pair<int, int>>{{0, 0}, {3, 5}, {70, 0}}) {
    for (const Alignment alignment : {Alignment::kFirst, Alignment::kLast}) {
      request_.args.options.alignment = alignment;
      request_.args.options.window_left = left;
      request_.args.options.window_right = right;
      ExpectMatchesReference(request_);
    }
  }
}

TEST_P(AttentionFewRowsOptions, ScaleAndSoftcap) {
  for (const float scale : {0.0f, -1.0f, 0.01f, 1e-35f}) {
    request_.args.options.scale = scale;
    ExpectMatchesReference(request_, Accuracy::kAnyScores);
  }
  request_.args.options.scale.reset();
  for (const float softcap : {0.5f, 50.0f}) {
    request_.args.options.softcap = softcap;
    ExpectMatchesReference(request_, Accuracy::kAnyScores);
  }
}

TEST_P(AttentionFewRowsOptions, AlibiAndSinks) {
  std::vector<float> sinks(sizes().query_heads, 0.5f);
  sinks.back() = -kInf;
  request_.sinks = Tensor::FromFloats(DType::kFloat32, {sizes().query_heads}, sinks);
  ExpectMatchesReference(request_);
  request_.alibi_slopes = Normal(DType::kFloat32, {sizes().query_heads}, 5, 0.05f);
  request_.args.options.alignment = Alignment::kLast;
  ExpectMatchesReference(request_, Accuracy::kAnyScores);
}

TEST_P(AttentionFewRowsOptions, BooleanMasks) {
  const Sizes& s = sizes();
  for (const Dims& shape : {Dims{s.kv_len}, Dims{s.query_len, 1}, Dims{s.query_heads, 1, s.kv_len},
                            Dims{s.batch, s.query_heads, s.query_len, s.kv_len}}) {
    request_.boolean_mask = Bools(shape, 11, 0.5);
    ExpectMatchesReference(request_);
  }
}

TEST_P(AttentionFewRowsOptions, AdditiveMasks) {
  const Sizes& s = sizes();
  for (const DType dtype : kFloats) {
    request_.additive_mask = Normal(dtype, {s.query_heads, s.query_len, s.kv_len}, 12);
    for (std::int64_t i = 0; i < request_.additive_mask->num_elements(); i += 3) {
      Poison(*request_.additive_mask, i, 1, -kInf);
    }
    Poison(*request_.additive_mask, 0, s.kv_len, -kInf);  // a row that sees nothing
    ExpectMatchesReference(request_, Accuracy::kAnyScores);
  }
}

TEST_P(AttentionFewRowsOptions, BlockMasks) {
  for (const std::int64_t block : {64, 192}) {
    BlockMask& mask = request_.args.options.block_mask.emplace();
    mask.key_block_size = block;
    const std::int64_t blocks = (sizes().kv_len + block - 1) / block;
    request_.blocks = Bools({sizes().query_heads, 1, blocks}, 3, 0.4);
    ExpectMatchesReference(request_);
    request_.blocks = Bools({blocks}, 4, 0.4);
    ExpectMatchesReference(request_);
  }
}

TEST_P(AttentionFewRowsOptions, WeightsAndEveryStageOfScores) {
  request_.args.options.causal = true;
  request_.args.options.alignment = Alignment::kLast;
  request_.args.options.softcap = 2;
  request_.boolean_mask = Bools({sizes().kv_len}, 6, 0.5);
  for (const ScoreStage stage : {ScoreStage::kScaled, ScoreStage::kCapped, ScoreStage::kBiased}) {
    request_.args.output = {.lse = true, .weights = true, .scores = stage};
    ExpectMatchesReference(request_, Accuracy::kAnyScores);
  }
}

TEST_P(AttentionFewRowsOptions, OutputDTypes) {  // pitfalls A61
  for (const DType dtype : kFloats) {
    for (const bool weights : {false, true}) {
      request_.args.output = {.dtype = dtype, .weights = weights};
      ExpectMatchesReference(request_);
    }
  }
}

// --- Layouts ------------------------------------------------------------------------------------

TEST_P(AttentionFewRowsOptions, LengthBeforeHeadsGivesTheSameBits) {  // pitfalls A19, A49
  Request length_first = request_;
  length_first.args.layout = Layout::kBatchLengthHeads;
  for (Tensor* tensor : {&length_first.query, &length_first.key, &length_first.value}) {
    *tensor = Exchanged(*tensor);
  }
  ExpectMatchesReference(length_first);
  const auto a = Compute(*AttentionProblem::Create(request_.Args()));
  const auto b = Compute(*AttentionProblem::Create(length_first.Args()));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(Exchanged(a->output).data, b->output.data);
  EXPECT_EQ(a->lse.data, b->lse.data);
}

// The output's bytes of a request whose views somebody changed.
std::vector<std::byte> OutputOf(const AttentionArgs& args) {
  const auto problem = AttentionProblem::Create(args);
  EXPECT_TRUE(problem.ok()) << problem.status();
  if (!problem.ok()) return {};
  const auto outputs = Compute(*problem);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? outputs->output.data : std::vector<std::byte>();
}

TEST_P(AttentionFewRowsOptions, AnOddAddressGivesTheSameBits) {
  AttentionArgs args = request_.Args();
  const std::vector<std::byte> expected = OutputOf(args);
  std::vector<std::vector<std::byte>> copies;
  for (TensorView* view : {&args.query, &args.key, &args.value}) {
    const std::int64_t bytes =
        view->num_elements() * static_cast<std::int64_t>(SizeOf(view->dtype));
    copies.emplace_back(bytes + 1);
    std::copy_n(view->data, bytes, copies.back().begin() + 1);
    view->data = copies.back().data() + 1;
  }
  EXPECT_EQ(OutputOf(args), expected);
}

TEST_P(AttentionFewRowsOptions, TransposedKeysAndValuesGiveTheSameBits) {
  AttentionArgs args = request_.Args();
  const std::vector<std::byte> expected = OutputOf(args);
  std::vector<Tensor> copies;
  for (TensorView* view : {&args.key, &args.value}) {
    // As [batch * heads, dim, length], read with its last two axes exchanged.
    const Dims shape = view->shape;
    const Tensor& tensor = view == &args.key ? request_.key : request_.value;
    Tensor rows = tensor;
    rows.shape = {shape[0] * shape[1], shape[2], shape[3], 1};
    copies.push_back(Exchanged(rows));
    view->data = copies.back().data.data();
    view->strides = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], 1, shape[2]};
  }
  EXPECT_EQ(OutputOf(args), expected);
}

// Tokens [begin, begin + count) of a packed tensor.
Tensor Tokens(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  Tensor part = tensor;
  const auto bytes = static_cast<std::int64_t>(tensor.data.size()) / tensor.shape[0];
  part.shape[0] = count;
  part.data.assign(tensor.data.begin() + begin * bytes,
                   tensor.data.begin() + (begin + count) * bytes);
  return part;
}

TEST(AttentionFewRowsLayouts, PackedItemsAreWhatTheyAreAlone) {
  for (const auto& [dim, dtype] :
       {std::pair{32, DType::kBFloat16}, std::pair{20, DType::kFloat32}}) {
    Request request;
    request.query = Normal(dtype, {38, 4, dim}, 1);
    request.key = Normal(dtype, {818, 2, dim}, 2);
    request.value = Normal(dtype, {818, 2, dim + 4}, 3);
    request.args.layout = Layout::kPacked;
    request.args.query_lengths = {1, 8, 0, 20, 2, 7};
    request.args.kv_lengths = {9, 600, 3, 130, 0, 76};
    request.args.options.causal = true;
    request.args.options.alignment = Alignment::kLast;
    ExpectMatchesReference(request);
    const auto together = Compute(*AttentionProblem::Create(request.Args()));
    ASSERT_TRUE(together.ok());
    std::int64_t query = 0;
    std::int64_t key = 0;
    for (std::size_t i = 0; i < request.args.query_lengths.size(); ++i) {
      const std::int64_t queries = request.args.query_lengths[i];
      const std::int64_t keys = request.args.kv_lengths[i];
      Request alone = request;
      alone.query = Tokens(request.query, query, queries);
      alone.key = Tokens(request.key, key, keys);
      alone.value = Tokens(request.value, key, keys);
      alone.args.query_lengths = {queries};
      alone.args.kv_lengths = {keys};
      EXPECT_EQ(OutputOf(alone.Args()), Tokens(together->output, query, queries).data) << i;
      query += queries;
      key += keys;
    }
  }
}

// --- Company ------------------------------------------------------------------------------------

// Items of few rows, and one that is not, on keys and values that the batch may share.
Request SharedRequest(std::int64_t key_batch, std::int64_t value_batch, std::int64_t dim) {
  Request request = MakeRequest({4, 2, 1, 40, 600, dim, 16, DType::kBFloat16});
  request.key = Normal(DType::kBFloat16, {key_batch, 1, 600, dim}, 2);
  request.value = Normal(DType::kBFloat16, {value_batch, 1, 600, 16}, 3);
  request.args.query_lengths = {1, 40, 8, 3};
  request.args.kv_lengths = {600, 70, 130, 0};
  return request;
}

TEST(AttentionFewRowsCompany, KeysAndValuesMayBeSharedWithItemsOfManyRows) {
  for (const auto& [keys, values] : {std::pair{1, 1}, std::pair{1, 4}, std::pair{4, 1}}) {
    for (const std::int64_t dim : {16, 20}) {
      Request request = SharedRequest(keys, values, dim);
      ExpectMatchesReference(request);
      Poison(request.value, 65 * 16 + 3, 1, kInf);
      Poison(request.key, 60 * dim + 3, 1, kNaN);
      ExpectMatchesReference(request);
      request.args.query_lengths = {1, 3, 8, 0};
      ExpectMatchesReference(request);
    }
  }
}

TEST(AttentionFewRowsCompany, ChangesNoBit) {  // pitfalls A44, A92
  Machine one(1);
  for (const auto& [keys, values] : {std::pair{1, 1}, std::pair{1, 4}, std::pair{4, 4}}) {
    const Request request = SharedRequest(keys, values, 16);
    const auto together = Compute(*AttentionProblem::Create(request.Args()));
    ASSERT_TRUE(together.ok());
    for (int b = 0; b < 4; ++b) {
      const auto alone = Compute(*AttentionProblem::Create(Alone(request, b).Args()), one);
      ASSERT_TRUE(alone.ok());
      EXPECT_EQ(alone->output.data, ItemOf(together->output, b).data) << b;
      EXPECT_EQ(alone->lse.data, ItemOf(together->lse, b).data) << b;
    }
  }
}

// --- What is not finite -------------------------------------------------------------------------

// Index of the first element of a row of a tensor [batch, heads, length, dim].
std::int64_t RowIndex(const Tensor& tensor, std::int64_t item, std::int64_t head,
                      std::int64_t row) {
  const Dims& shape = tensor.shape;
  return ((item * shape[1] + head) * shape[2] + row) * shape[3];
}

void PoisonRow(Tensor& tensor, std::int64_t item, std::int64_t head, std::int64_t row, float with) {
  Poison(tensor, RowIndex(tensor, item, head, row), tensor.shape[3], with);
}

// A way to exclude keys from all rows of 5 queries on 600 keys.
struct Exclusion {
  const char* name;
  std::vector<std::int64_t> keys;
  void (*apply)(Request&);
};

std::vector<Exclusion> Exclusions() {
  return {{"length",
           {570, 580, 599},
           [](Request& r) {
             r.args.kv_lengths = {570, 570};
           }},
          {"causal", {5, 20, 580}, [](Request& r) { r.args.options.causal = true; }},
          {"window",
           {20, 580, 584},
           [](Request& r) {
             r.args.options.alignment = Alignment::kLast;
             r.args.options.window_left = 10;
           }},
          {"boolean mask",
           {20, 580},
           [](Request& r) {
             r.boolean_mask = Bools({600}, 1, 1.0);
             r.boolean_mask->data[20] = r.boolean_mask->data[580] = std::byte{0};
           }},
          {"additive mask",
           {20, 580},
           [](Request& r) {
             r.additive_mask = Normal(DType::kFloat32, {600}, 1);
             Poison(*r.additive_mask, 20, 1, -kInf);
             Poison(*r.additive_mask, 580, 1, -kInf);
           }},
          {"blocks", {20, 580}, [](Request& r) {
             r.blocks = Bools({1, 1, 1, 10}, 1, 1.0);
             r.blocks->data[0] = r.blocks->data[9] = std::byte{0};
           }}};
}

TEST(AttentionFewRowsNonFinite, ExcludedKeysAndValuesChangeNoBit) {  // pitfalls A32, A34, A35
  for (const Sizes& sizes :
       {Sizes{2, 4, 2, 5, 600, 16, 32}, Sizes{2, 4, 2, 5, 600, 20, 8, DType::kBFloat16}}) {
    for (const Exclusion& exclusion : Exclusions()) {
      Request clean = MakeRequest(sizes);
      clean.args.output = {.lse = true, .weights = true, .scores = ScoreStage::kBiased};
      exclusion.apply(clean);
      for (const float poison : {kNaN, kInf, -kInf, 1e38f}) {
        SCOPED_TRACE(std::string(exclusion.name) + " " + std::to_string(poison));
        Request dirty = clean;
        for (const std::int64_t key : exclusion.keys) {
          PoisonRow(dirty.key, 1, 0, key, poison);
          PoisonRow(dirty.value, 1, 0, key, poison);
        }
        ExpectSameBits(clean, dirty);
      }
    }
  }
}

TEST(AttentionFewRowsNonFinite, ExcludedValuesDoNotEvenChangeTheSignOfAZero) {
  for (const std::int64_t queries : {1, 17}) {
    // Of two visible keys one has a value of 0, and the other one that vanishes below it.
    Request clean = MakeRequest({1, 1, 1, queries, 64, 16, 16});
    Poison(clean.query, 0, queries * 16, 0);
    Poison(clean.value, 0, 16, 0);
    Poison(clean.value, 16, 16, -1e-45f);
    clean.additive_mask = *Tensor::Zeros(DType::kFloat32, {64});
    Poison(*clean.additive_mask, 1, 1, -5);
    Poison(*clean.additive_mask, 2, 62, -kInf);
    Poison(clean.value, 2 * 16, 62 * 16, -1);
    for (const float other : {1.0f, 0.0f, kNaN}) {
      Request dirty = clean;
      Poison(dirty.value, 2 * 16, 62 * 16, other);
      ExpectSameBits(clean, dirty);
    }
  }
}

TEST(AttentionFewRowsNonFinite, RowsThatDoNotSeeThemChangeNoBit) {  // pitfalls A28
  for (const std::int64_t dim : {16, 20}) {
    for (const bool key : {true, false}) {
      Request clean = MakeRequest({1, 2, 1, 5, 600, dim, dim});
      clean.args.options.causal = true;
      clean.args.options.alignment = Alignment::kLast;
      Request dirty = clean;
      // Query 2 is the first to see it.
      PoisonRow(key ? dirty.key : dirty.value, 0, 0, 597, kNaN);
      ExpectMatchesReference(dirty);
      const auto a = Compute(*AttentionProblem::Create(clean.Args()));
      const auto b = Compute(*AttentionProblem::Create(dirty.Args()));
      ASSERT_TRUE(a.ok() && b.ok());
      const std::vector<float> x = a->output.ToFloats();
      const std::vector<float> y = b->output.ToFloats();
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i) {
        const bool sees = i / dim % 5 >= 2;
        EXPECT_TRUE(sees ? std::isnan(y[i]) : x[i] == y[i]) << i;
      }
    }
  }
}

TEST(AttentionFewRowsNonFinite, VisibleOnesReachTheRowsThatSeeThem) {  // pitfalls A37, A38
  for (const Sizes& sizes :
       {Sizes{2, 2, 1, 3, 565, 16, 16}, Sizes{2, 2, 1, 3, 565, 20, 8, DType::kBFloat16}}) {
    for (const float poison : {kNaN, kInf, -kInf}) {
      for (const bool causal : {false, true}) {
        for (const std::int64_t row : {11, 562}) {
          for (int which = 0; which < 3; ++which) {
            Request request = MakeRequest(sizes);
            request.args.options.causal = causal;
            request.args.options.alignment = Alignment::kLast;
            Tensor& tensor = which == 0 ? request.query : which == 1 ? request.key : request.value;
            const std::int64_t at = which == 0 ? row % 3 : row;
            Poison(tensor, RowIndex(tensor, 1, 0, at) + 2, 1, poison);
            ExpectMatchesReference(request);
          }
        }
      }
    }
  }
}

TEST(AttentionFewRowsNonFinite, InfiniteValuesAddUp) {
  Request request = MakeRequest({1, 3, 1, 2, 600, 16, 16});
  for (const auto& [key, column, poison] :
       std::vector<std::tuple<int, int, float>>{{3, 0, kInf},
                                                {570, 0, kInf},  // inf
                                                {3, 1, kInf},
                                                {4, 1, -kInf},  // NaN
                                                {9, 2, kInf},
                                                {550, 2, -kInf},  // NaN
                                                {9, 3, -kInf},
                                                {550, 4, kNaN}}) {
    Poison(request.value, key * 16 + column, 1, poison);
  }
  ExpectMatchesReference(request);
}

TEST(AttentionFewRowsNonFinite, InfiniteValuesOfVanishingWeightAreSeen) {
  Request request = MakeRequest({1, 3, 1, 2, 600, 16, 16});
  request.additive_mask = *Tensor::Zeros(DType::kFloat32, {600});
  for (const std::int64_t key : {20, 580}) {
    Poison(*request.additive_mask, key, 1, -1e4f);
    Poison(request.value, key * 16 + key % 16, 1, kInf);
  }
  ExpectMatchesReference(request, Accuracy::kAnyScores);
}

TEST(AttentionFewRowsNonFinite, AnInfiniteScoreMakesItsRowNaNAndNoOther) {
  for (const std::int64_t dim : {16, 20}) {
    Request request = MakeRequest({1, 1, 1, 4, 600, dim, 16});
    PoisonRow(request.query, 0, 0, 1, 1e30f);
    PoisonRow(request.key, 0, 0, 580, 1e30f);
    request.args.output.weights = true;
    const auto outputs = Compute(*AttentionProblem::Create(request.Args()));
    ASSERT_TRUE(outputs.ok());
    const std::vector<float> lse = outputs->lse.ToFloats();
    const std::vector<float> values = outputs->output.ToFloats();
    const std::vector<float> weights = outputs->weights.ToFloats();
    for (int row = 0; row < 4; ++row) {
      EXPECT_EQ(std::isnan(lse[row]), row == 1);
      for (int d = 0; d < 16; ++d) EXPECT_EQ(std::isnan(values[row * 16 + d]), row == 1) << row;
      for (int j = 0; j < 600; ++j) EXPECT_EQ(std::isnan(weights[row * 600 + j]), row == 1) << row;
    }
  }
}

// --- Memory -------------------------------------------------------------------------------------

TEST(AttentionFewRowsMemory, IsNotThatOfKeysAndValues) {
  const Request few = MakeRequest({1, 16, 1, 1, 4000, 64, 64, DType::kBFloat16});
  const Request many = MakeRequest({1, 17, 1, 1, 4000, 64, 64, DType::kBFloat16});
  EXPECT_LT(WorkingBytes(*AttentionProblem::Create(few.Args())), 10'000);
  EXPECT_GT(WorkingBytes(*AttentionProblem::Create(many.Args())), 2 * 4000 * 64 * 4);
}

}  // namespace
}  // namespace attend::testing

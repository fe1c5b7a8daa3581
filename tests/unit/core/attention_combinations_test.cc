// Options in random combinations: the fast path against the float64 reference.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/core/attention_check.h"

namespace attend::testing {
namespace {

// Makes a request from a seed: the same one on every machine that has the same random numbers.
class RequestMaker {
 public:
  explicit RequestMaker(std::uint32_t seed) : seed_(seed), random_(seed) {}

  Request Make() {
    sizes_ = {.batch = Pick({1, 1, 2, 3}),
              .query_heads = 0,
              .kv_heads = Pick({1, 2, 3}),
              .query_len = Pick({0, 1, 2, 15, 16, 17, 40, 70}),
              .kv_len = Pick({0, 1, 5, 63, 64, 65, 130, 515, 580}),
              .head_dim = Pick({1, 3, 8, 16, 20}),
              .value_dim = Pick({1, 5, 16, 19}),
              .dtype = DTypeOf(Pick({0, 0, 1, 2}))};
    sizes_.query_heads = sizes_.kv_heads * Pick({1, 2, 5});
    Request request = Chance(0.25) ? Packed() : Padded();
    AddScalars(request);
    AddPositions(request);
    AddMasks(request);
    if (Chance(0.2)) Poison(request);
    request.args.output.lse = true;
    request.args.output.weights = Chance(0.5);
    request.args.output.scores = static_cast<ScoreStage>(Pick({0, 0, 1, 2, 3}));
    if (Chance(0.5)) request.args.output.dtype = DType::kFloat32;
    return request;
  }

 private:
  std::int64_t Pick(std::vector<std::int64_t> values) {
    return values[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random_)];
  }
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  static DType DTypeOf(std::int64_t index) {
    return index == 0 ? DType::kFloat32 : index == 1 ? DType::kBFloat16 : DType::kFloat16;
  }

  Request Padded() {
    Request request = MakeRequest(sizes_, seed_);
    if (Chance(0.3)) {  // the same bytes, read the other way around
      request.args.layout = Layout::kBatchLengthHeads;
      for (Tensor* tensor : {&request.query, &request.key, &request.value}) {
        std::swap(tensor->shape[1], tensor->shape[2]);
      }
    }
    if (sizes_.batch > 1 && Chance(0.2)) {
      request.key.shape[0] = 1;
      request.key.data.resize(request.key.data.size() / sizes_.batch);
    }
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      request.args.query_lengths.push_back(Pick({sizes_.query_len, sizes_.query_len / 2}));
      request.args.kv_lengths.push_back(Pick({sizes_.kv_len, sizes_.kv_len * 2 / 3, 0}));
    }
    if (Chance(0.5)) request.args.query_lengths.clear();
    if (Chance(0.5)) request.args.kv_lengths.clear();
    return request;
  }

  Request Packed() {
    packed_ = true;
    Request request;
    std::int64_t queries = 0;
    std::int64_t keys = 0;
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      request.args.query_lengths.push_back(Pick({0, 1, sizes_.query_len}));
      request.args.kv_lengths.push_back(Pick({0, 3, sizes_.kv_len}));
      queries += request.args.query_lengths.back();
      keys += request.args.kv_lengths.back();
    }
    request.args.layout = Layout::kPacked;
    request.query = Normal(sizes_.dtype, {queries, sizes_.query_heads, sizes_.head_dim}, seed_);
    request.key = Normal(sizes_.dtype, {keys, sizes_.kv_heads, sizes_.head_dim}, seed_ + 1);
    request.value = Normal(sizes_.dtype, {keys, sizes_.kv_heads, sizes_.value_dim}, seed_ + 2);
    return request;
  }

  void AddScalars(Request& request) {
    AttentionOptions& options = request.args.options;
    if (Chance(0.3))
      options.scale = std::vector<float>{0.0f, -0.7f, 0.2f, 1.0f}[Pick({0, 1, 2, 3})];
    if (Chance(0.3)) options.softcap = Chance(0.5) ? 1.5f : 20.0f;
    const std::int64_t heads = sizes_.query_heads;
    if (Chance(0.3)) {
      const Dims shape = Chance(0.5) ? Dims{heads} : Dims{sizes_.batch, heads};
      request.alibi_slopes = Normal(DType::kFloat32, shape, seed_ + 3, 0.05f);
    }
    if (Chance(0.3)) request.sinks = Normal(DType::kFloat32, {heads}, seed_ + 4);
  }

  void AddPositions(Request& request) {
    AttentionOptions& options = request.args.options;
    options.causal = Chance(0.4);
    options.alignment = static_cast<Alignment>(Pick({0, 1, 2}));
    if (options.alignment == Alignment::kOffsets) {
      for (std::int64_t b = 0; b < sizes_.batch; ++b) {
        options.query_offsets.push_back(Pick({0, 7, -9, sizes_.kv_len - 3, 1000, -1000}));
      }
    }
    if (Chance(0.25)) options.window_left = Pick({0, 1, 9, 64, 200});
    if (Chance(0.25)) options.window_right = Pick({0, 1, 9, 64, 200});
  }

  // A shape that broadcasts to the four sizes, some of whose axes are 1.
  Dims MaskShape(Dims target) {
    for (std::int64_t& size : target) {
      if (Chance(0.3)) size = 1;
    }
    if (packed_) return {target[1], 1, 1};
    return target;
  }

  void AddMasks(Request& request) {
    const auto blocks = [](std::int64_t length, std::int64_t size) {
      return (length + size - 1) / size;
    };
    const Dims full = {sizes_.batch, sizes_.query_heads, sizes_.query_len, sizes_.kv_len};
    if (Chance(0.3)) request.boolean_mask = Bools(MaskShape(full), seed_ + 5, 0.7);
    if (Chance(0.3)) {
      request.additive_mask = Normal(DTypeOf(Pick({0, 1, 2})), MaskShape(full), seed_ + 6);
      Tensor& mask = *request.additive_mask;
      for (std::int64_t i = 0; i < mask.num_elements(); i += 5) {
        StoreFloat(mask.dtype, mask.data.data() + i * static_cast<std::int64_t>(SizeOf(mask.dtype)),
                   -kInf);
      }
    }
    if (Chance(0.3)) {
      BlockMask& mask = request.args.options.block_mask.emplace();
      mask.query_block_size = Pick({64, 128});
      mask.key_block_size = Pick({64, 192, 512});
      request.blocks = Bools(MaskShape({sizes_.batch, sizes_.query_heads,
                                        blocks(sizes_.query_len, mask.query_block_size),
                                        blocks(sizes_.kv_len, mask.key_block_size)}),
                             seed_ + 7, 0.6);
    }
  }

  void Poison(Request& request) {
    std::vector<Tensor*> tensors = {&request.query, &request.key, &request.value};
    Tensor& tensor = *tensors[Pick({0, 1, 2})];
    const std::int64_t count = tensor.num_elements();
    if (count == 0) return;
    const std::int64_t at = std::uniform_int_distribution<std::int64_t>(0, count - 1)(random_);
    StoreFloat(tensor.dtype,
               tensor.data.data() + at * static_cast<std::int64_t>(SizeOf(tensor.dtype)),
               std::vector<float>{kNaN, kInf, -kInf}[Pick({0, 1, 2})]);
  }

  const std::uint32_t seed_;
  std::mt19937 random_;
  Sizes sizes_;
  bool packed_ = false;
};

class AttentionCombinations : public ::testing::TestWithParam<int> {};

TEST_P(AttentionCombinations, MatchReference) {
  for (int i = 0; i < 20; ++i) {
    const auto seed = static_cast<std::uint32_t>(GetParam() * 20 + i);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Request request = RequestMaker(seed).Make();
    ExpectMatchesReference(request, Accuracy::kAnyScores);
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AttentionCombinations, ::testing::Range(0, 15));

}  // namespace
}  // namespace attend::testing

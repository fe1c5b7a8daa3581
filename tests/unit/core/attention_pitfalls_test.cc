// What went wrong in attention elsewhere, each by what triggered it there. A1 to A100 are the
// numbers of a list of public reports; those of it that concern what exists and have no test here
// are named where their theme is tested.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/unit/core/attention_check.h"
#include "tests/unit/core/attention_rules.h"
#include "tests/unit/core/worked_examples.h"

namespace attend::testing {
namespace {

constexpr double kRounding = 4e-6;  // what float32 may lose of results of about 1
constexpr float kLowest = std::numeric_limits<float>::lowest();

// --- Weights beside the output -------------------------------------------------------------------

void ExpectWeightsChangeNoBitOfTheOutput(Request request) {
  request.args.output.weights = false;
  const Outputs without = MustCompute(request);
  request.args.output.weights = true;
  const Outputs with = MustCompute(request);
  EXPECT_EQ(without.output.data, with.output.data);
  EXPECT_EQ(without.lse.data, with.lse.data);
  ExpectMatchesReference(request);
}

TEST(Pitfall, A2HeadsWithoutAnyKeyGiveZerosWithAndWithoutWeights) {
  for (const std::int64_t queries : {1, 5, 17}) {
    Request request = MakeRequest({2, 3, 3, queries, 30, 8, 8});
    request.boolean_mask = Bools({3, 1, 1}, 1, 0);
    request.boolean_mask->data[1] = std::byte{1};
    ExpectWeightsChangeNoBitOfTheOutput(request);
    request.args.output.weights = true;
    const Outputs outputs = MustCompute(request);
    for (const auto& [tensor, columns] :
         {std::pair{&outputs.output, 8}, std::pair{&outputs.weights, 30}}) {
      const std::vector<float> values = tensor->ToFloats();
      for (std::int64_t i = 0; i < tensor->num_elements(); ++i) {
        ASSERT_EQ(values[i] == 0, i / columns / queries % 3 != 1) << i;
      }
    }
  }
}

TEST(Pitfall, A29CausalityHoldsWhereWeightsAreAskedFor) {
  for (const std::int64_t length : {12, 40, 600}) {
    Request request = MakeRequest({1, 1, 1, length, length, 8, 8});
    request.args.options.causal = true;
    ExpectWeightsChangeNoBitOfTheOutput(request);
    request.args.output.weights = true;
    const std::vector<float> weights = MustCompute(request).weights.ToFloats();
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t j = 0; j < length; ++j) {
        ASSERT_EQ(weights[i * length + j] > 0, j <= i) << i << " " << j;
      }
    }
  }
}

// Head h of 3 puts all its weight on key h: an average over heads, or another order of them, shows.
TEST(Pitfall, A31WeightsAreEachHeadsOwn) {
  Request request = MakeRequest({2, 3, 3, 2, 4, 4, 1});
  request.query = *Tensor::Zeros(DType::kFloat32, {2, 3, 2, 4});
  request.key = *Tensor::Zeros(DType::kFloat32, {2, 3, 4, 4});
  for (std::int64_t head = 0; head < 6; ++head) {
    for (const std::int64_t row : {0, 1}) Poison(request.query, (head * 2 + row) * 4, 1, 2000);
    Poison(request.key, (head * 4 + head % 3) * 4, 1, 1);
  }
  request.boolean_mask = Bools({2, 3, 1, 1}, 1, 1);
  request.boolean_mask->data[4] = std::byte{0};  // item 1, head 1
  request.args.output.weights = true;
  EXPECT_EQ(AttentionProblem::Create(request.Args())->score_shape(), (Dims{2, 3, 2, 4}));
  for (const Answer& answer : BothAnswers(request)) {
    for (std::int64_t i = 0; i < 2 * 3 * 2 * 4; ++i) {
      const std::int64_t head = i / 8;
      EXPECT_EQ(answer.weights[i], i % 4 == head % 3 && head != 4 ? 1 : 0) << answer.path << i;
    }
  }
}

// --- Masks ---------------------------------------------------------------------------------------

// To a row of which every key is masked by the lowest finite number, all that causality leaves are
// alike; sums of two such masks overflow, and what the caller has summed to -inf excludes.
TEST(Pitfall, A8CausalityIsNoNumberThatIsAddedToTheMask) {
  for (const auto& [dtype, lowest] :
       {std::pair{DType::kFloat32, kLowest}, std::pair{DType::kBFloat16, -0x1.fep127f},
        std::pair{DType::kFloat16, -65504.0f}}) {
    Request request = Uniform(3, {1, 2, 3});
    request.args.options.causal = true;
    request.additive_mask = As(dtype, Given({3}, {lowest, lowest, lowest}));
    for (const Answer& answer : BothAnswers(request)) {
      ExpectNear(answer.output, {1, 1.5, 2}, kRounding, answer);
    }
    request.additive_mask = As(dtype, Given({3}, {-kInf, lowest, 0}));
    for (const Answer& answer : BothAnswers(request)) {
      ExpectNear(answer.output, {0, 2, 3}, kRounding, answer);
      EXPECT_EQ(answer.lse[0], -static_cast<double>(kInf)) << answer.path;
    }
  }
}

// Visible scores lie below whatever a kernel might have put in the place of excluded ones.
TEST(Pitfall, A11ExcludedKeysHaveNoScoreHoweverLowTheOthersAre) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const float scale : {1.0f, 2.0f, 1e5f, 1e33f}) {
      for (const std::int64_t queries : {1, 17}) {
        Request request;
        request.query = As(dtype, Matrix(queries, 1, std::vector<float>(queries, 1)));
        request.key = As(dtype, Matrix(3, 1, {0, -6e4f, -6e4f}));
        request.value = As(dtype, Matrix(3, 1, {7, 1, 3}));
        request.boolean_mask = Bools({3}, 1, 1);
        request.boolean_mask->data[0] = std::byte{0};
        request.args.options.scale = scale;
        for (const Answer& answer : BothAnswers(request)) {
          ExpectNear(answer.output, Numbers(queries, 2), kRounding, answer);
          EXPECT_EQ(answer.weights[0], 0) << answer.path << " " << scale;
        }
      }
    }
  }
}

TEST(Pitfall, A13OnesAndZerosExcludeAsBoolsAndAreAddedAsFloats) {
  Request request = Uniform(1, {1, 2, 6});
  request.boolean_mask = Bools({3}, 1, 1);
  request.boolean_mask->data[1] = std::byte{0};
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {3.5}, kRounding, answer);
  }
  request.boolean_mask.reset();
  const double e = std::exp(1);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    request.additive_mask = As(dtype, Given({3}, {1, 0, 1}));
    for (const Answer& answer : BothAnswers(request)) {
      ExpectNear(answer.weights, {e / (2 * e + 1), 1 / (2 * e + 1), e / (2 * e + 1)}, kRounding,
                 answer);
    }
  }
}

// A float mask that keeps by 0 and drops by the lowest number is not read the other way round.
TEST(Pitfall, A14LaterTokensBehindAFloatMaskChangeNoEarlierRow) {
  constexpr std::int64_t kTokens = 20;
  constexpr std::int64_t kFirstChanged = 12;
  Request request = MakeRequest({1, 1, 1, kTokens, kTokens, 8, 8});
  request.additive_mask = *Tensor::Zeros(DType::kFloat32, {kTokens, kTokens});
  for (std::int64_t i = 0; i < kTokens; ++i) {
    Poison(*request.additive_mask, i * kTokens + i + 1, kTokens - 1 - i, kLowest);
  }
  Request other = request;
  for (Tensor* tensor : {&other.key, &other.value}) {
    Poison(*tensor, kFirstChanged * 8, (kTokens - kFirstChanged) * 8, 3);
  }
  const std::vector<float> before = MustCompute(request).output.ToFloats();
  const std::vector<float> after = MustCompute(other).output.ToFloats();
  for (std::int64_t i = 0; i < kTokens * 8; ++i) {
    EXPECT_EQ(before[i] == after[i], i < kFirstChanged * 8) << i;
  }
  request.additive_mask.reset();
  request.args.options.causal = true;
  const std::vector<float> causal = MustCompute(request).output.ToFloats();
  for (std::int64_t i = 0; i < kTokens * 8; ++i) EXPECT_NEAR(before[i], causal[i], 2e-5) << i;
}

// --- Causality and windows -----------------------------------------------------------------------

TEST(Pitfall, A25TheCornerShowsWhereLengthsDiffer) {
  for (const std::int64_t queries : {1, 16}) {
    Request plain = MakeRequest({1, 1, 1, queries, 16, 64, 64});
    Request first = plain;
    first.args.options.causal = true;
    Request last = first;
    last.args.options.alignment = Alignment::kLast;
    ExpectMatchesReference(first);
    if (queries == 16) {
      ExpectSameBits(first, last);
      continue;
    }
    ExpectSameBits(last, plain);
    const std::vector<float> values = plain.value.ToFloats();
    const std::vector<float> of_key_0(values.begin(), values.begin() + 64);
    EXPECT_EQ(MustCompute(first).output.ToFloats(), of_key_0);
  }
}

// A window of 128 tokens, with the query's own, is as wide for a step as for the whole.
TEST(Pitfall, A68AStepEqualsItsRowOfThePrefill) {
  Request prefill = MakeRequest({1, 1, 1, 300, 300, 16, 16});
  prefill.args.options.causal = true;
  prefill.args.options.window_left = 127;
  const std::vector<float> rows = MustCompute(prefill).output.ToFloats();
  for (const std::int64_t i : {0, 126, 127, 128, 129, 299}) {
    Request step = prefill;
    step.query.shape[2] = 1;
    step.query.data.assign(prefill.query.data.begin() + i * 64,
                           prefill.query.data.begin() + (i + 1) * 64);
    for (Tensor* tensor : {&step.key, &step.value}) {
      tensor->shape[2] = i + 1;
      tensor->data.resize((i + 1) * 64);
    }
    step.args.options.alignment = Alignment::kLast;
    const std::vector<float> row = MustCompute(step).output.ToFloats();
    for (std::int64_t d = 0; d < 16; ++d) {
      // Both within 2e-6 of the exact one, as a share of values below 5.
      EXPECT_NEAR(row[d], rows[i * 16 + d], 2 * 2e-6 * 5) << i;
    }
  }
}

TEST(Pitfall, A70WindowsToBothSidesNeedNoCausality) {
  Request request = Uniform(7, {1, 2, 3, 4, 5, 6, 7});
  request.args.options.window_left = 2;
  request.args.options.window_right = 1;
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {1.5, 2, 2.5, 3.5, 4.5, 5.5, 6}, kRounding * 7, answer);
  }
  request.args.options.window_left.reset();
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {1.5, 2, 2.5, 3, 3.5, 4, 4}, kRounding * 7, answer);
  }
  request.args.options.window_left = 2;
  request.args.options.window_right.reset();
  for (const Answer& answer : BothAnswers(request)) {
    ExpectNear(answer.output, {4, 4, 4, 4.5, 5, 5.5, 6}, kRounding * 7, answer);
  }
}

// With all scores equal, one key too many moves the mean by one half.
TEST(Pitfall, A71WindowsEndAtTheirKeyWhateverTheTiles) {
  constexpr std::int64_t kKeys = 4700;  // more than a part
  std::vector<float> values(kKeys);
  for (std::int64_t j = 0; j < kKeys; ++j) values[j] = static_cast<float>(j);
  for (const std::int64_t queries : {1, 20}) {
    Request request = Uniform(queries, values);
    request.args.options.causal = true;
    request.args.options.alignment = Alignment::kLast;
    for (const std::int64_t window : {0, 1, 15, 16, 17, 63, 64, 65, 511, 512, 513, 603, 604, 605}) {
      request.args.options.window_left = window;
      const std::vector<float> means = MustCompute(request).output.ToFloats();
      for (std::int64_t i = 0; i < queries; ++i) {
        const auto position = static_cast<double>(kKeys - queries + i);
        EXPECT_NEAR(means[i], position - static_cast<double>(window) / 2, 2e-6 * kKeys)
            << window << " " << i;
      }
    }
  }
}

// --- What is not finite, and memory of others ----------------------------------------------------

TEST(Pitfall, A35WhatARequestLeavesInScratchReachesNoOther) {
  for (const Sizes& sizes :
       {Sizes{1, 2, 1, 3, 70, 20, 9}, Sizes{1, 2, 1, 30, 570, 20, 9, DType::kBFloat16},
        Sizes{1, 1, 1, 2, 4200, 16, 16}, Sizes{1, 1, 1, 20, 4200, 16, 16}}) {
    SCOPED_TRACE(::testing::PrintToString(sizes));
    Request request = MakeRequest(sizes);
    request.args.output = {.lse = true, .weights = true, .scores = ScoreStage::kBiased};
    request.boolean_mask = Bools({sizes.query_len, sizes.kv_len}, 4, 0.8);
    // Longer and wider, so that it also leaves what the next one pads.
    Request poisoned = MakeRequest({1, sizes.query_heads, sizes.kv_heads, sizes.query_len + 60,
                                    sizes.kv_len + 100, 32, 32, sizes.dtype});
    for (Tensor* tensor : {&poisoned.query, &poisoned.key, &poisoned.value}) {
      Poison(*tensor, 0, tensor->num_elements(), kNaN);
    }
    // Of few rows, which are copied since their dims are no multiple of a vector.
    Request few = MakeRequest({1, 1, 1, 16, sizes.kv_len + 100, 31, 31, sizes.dtype});
    for (Tensor* tensor : {&few.query, &few.key, &few.value}) {
      Poison(*tensor, 0, tensor->num_elements(), kNaN);
    }
    Machine fresh(1);
    Machine used(1);
    ASSERT_TRUE(Compute(*AttentionProblem::Create(poisoned.Args()), used).ok());
    ASSERT_TRUE(Compute(*AttentionProblem::Create(few.Args()), used).ok());
    ExpectSameBits(request, request, fresh, used);
  }
}

TEST(Pitfall, A38AnInfiniteScoreMakesItsRowNaN) {
  Request request = Uniform(2, {1, 2, 3});
  request.query = Matrix(2, 1, {1, -1});
  request.key = Matrix(3, 1, {kInf, 1, 2});
  for (const Answer& answer : BothAnswers(request)) {
    for (int j = 0; j < 3; ++j) EXPECT_TRUE(std::isnan(answer.weights[j])) << answer.path;
    EXPECT_TRUE(std::isnan(answer.output[0])) << answer.path;
    // The other row's scores are -inf, -1 and -2.
    EXPECT_EQ(answer.weights[3], 0) << answer.path;
    EXPECT_NEAR(answer.weights[4], 1 / (1 + std::exp(-1)), kRounding) << answer.path;
    EXPECT_NEAR(answer.output[1], 3 - 1 / (1 + std::exp(-1)), kRounding) << answer.path;
  }
}

// --- More than 32 bits count ---------------------------------------------------------------------

// Addresses of which only those that are written take memory or can be read at all, so that any
// machine has room for them.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  }
  ~SparseMemory() {
    if (ok()) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  bool ok() const { return data_ != MAP_FAILED; }

  // Copies a tensor's elements to where a view of these strides has them, `first` bytes from here.
  TensorView Spread(const Tensor& tensor, const Dims& strides, std::int64_t first) {
    std::byte* const base = static_cast<std::byte*>(data_) + first;
    const auto size = static_cast<std::int64_t>(SizeOf(tensor.dtype));
    for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
      std::int64_t at = 0;
      std::int64_t rest = i;
      for (int axis = 3; axis >= 0; --axis) {
        at += rest % tensor.shape[axis] * strides[axis];
        rest /= tensor.shape[axis];
      }
      Open(base + at * size, size);
      std::copy_n(tensor.data.begin() + i * size, size, base + at * size);
    }
    return {tensor.dtype, tensor.shape, strides, base};
  }

 private:
  // Makes the pages of an element accessible.
  static void Open(std::byte* element, std::int64_t size) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(element);
    const std::uintptr_t first = address / page * page;
    ASSERT_EQ(
        mprotect(reinterpret_cast<void*>(first), address + size - first, PROT_READ | PROT_WRITE),
        0);
  }

  std::size_t bytes_;
  void* data_;
};

// Tokens of a fused tensor that lie far apart: of 18 rows, 7 past 2^32 elements from the first and
// 12 past 2^31, and so in a mask. 6 rows of queries read them where they are, 18 have them
// gathered.
TEST(Pitfall, A53AndA55AndA56OffsetsPast32BitsFollowTheStrides) {
  constexpr std::int64_t kTokens = 9;
  constexpr std::int64_t kDim = 16;
  constexpr std::int64_t kFar = (std::int64_t{3} << 27) + 256;
  SparseMemory memory(2 * kTokens * kFar * sizeof(float));
  SparseMemory mask_memory(2 * kTokens * kFar);
  ASSERT_TRUE(memory.ok() && mask_memory.ok());
  for (const std::int64_t queries : {std::int64_t{3}, kTokens}) {
    Request request = MakeRequest({2, 2, 1, queries, kTokens, kDim, kDim});
    request.boolean_mask = Bools({2, 1, queries, kTokens}, 3, 0.6);
    AttentionArgs args = request.Args();
    std::int64_t first = 0;
    for (const auto& [view, tensor] :
         {std::pair{&args.query, &request.query}, std::pair{&args.key, &request.key},
          std::pair{&args.value, &request.value}}) {
      *view = memory.Spread(*tensor, {kTokens * kFar, kDim, kFar, 1}, first);
      first += tensor->shape[1] * kDim * static_cast<std::int64_t>(sizeof(float));
    }
    args.boolean_mask = mask_memory.Spread(*request.boolean_mask, {kTokens * kFar, 0, kFar, 1}, 0);
    const auto problem = AttentionProblem::Create(args);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const auto outputs = Compute(*problem);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(outputs->output.data, MustCompute(request).output.data) << queries;
  }
}

TEST(Pitfall, A58WorkIsCountedPast32Bits) {
  // Tiles of 64 of 2^22 queries, of 2^10 heads of 2^10 items, which share a key.
  AttentionArgs args = ShapesOnly({1024, 1024, 1 << 22, 1}, {1, 1024, 1, 1}, {1, 1024, 1, 1});
  const auto tiles = AttentionProblem::Create(args);
  ASSERT_TRUE(tiles.ok()) << tiles.status();
  Outputs none(*AttentionProblem::Create(ShapesOnly({0, 1, 1, 1}, {0, 1, 1, 1}, {0, 1, 1, 1})));
  const auto job = MakeAttentionJob(SharedMachine().engine, *tiles, none.pointers(*tiles), {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ((*job)->num_units(1), std::int64_t{1} << 36);
  args = ShapesOnly({1, 1024, 17, 1024}, {1, 1024, 1 << 22, 1024}, {1, 1024, 1 << 22, 1024});
  const auto large = AttentionProblem::Create(args);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_GE(WorkingBytes(*large), std::int64_t{1} << 45);
}

}  // namespace
}  // namespace attend::testing

// The fast path against the float64 reference.
#include "core/attention/attention.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/base/reference.h"
#include "core/base/status.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {
namespace {

// Unit roundoff of a dtype (8 and 11 bits of precision): what the one rounding at the end costs.
double RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
    default:
      return 0;
  }
}

// Smallest step of a dtype, for results near zero.
double StepOf(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-25 : 0; }

bool SameKind(double a, double b) {
  return std::isnan(a) == std::isnan(b) && std::isinf(a) == std::isinf(b) &&
         (!std::isinf(a) || a == b);
}

// Checks every output of `request` against the reference. The bound is design.md's for
// unit-variance inputs: 2e-6 * sum_j w_j |v_j|, plus the rounding to the output's dtype.
// `widen` scales it where scores are larger than unit variance makes them.
void ExpectMatchesReference(const Request& request, double widen = 1,
                            Machine& machine = SharedMachine()) {
  const auto problem = AttentionProblem::Create(request.Args());
  ASSERT_TRUE(problem.ok()) << problem.status();
  const ReferenceResult expected = ReferenceAttention(*problem);
  const auto outputs = Compute(*problem, machine);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const DType dtype = problem->output_dtype();
  const std::vector<float> output = outputs->output.ToFloats();
  ASSERT_EQ(output.size(), expected.output.size());
  for (std::size_t i = 0; i < output.size(); ++i) {
    const double want = expected.output[i];
    ASSERT_TRUE(SameKind(output[i], want)) << "output[" << i << "] " << output[i] << " " << want;
    if (!std::isfinite(want)) continue;
    const double bound = widen * 2e-6 * expected.magnitude[i] + RoundingOf(dtype) * std::abs(want) +
                         StepOf(dtype) + 1e-38;
    ASSERT_NEAR(output[i], want, bound * 1.001) << "output[" << i << "]";
  }
  const std::vector<float> lse = outputs->lse.ToFloats();
  for (std::size_t i = 0; i < lse.size(); ++i) {
    ASSERT_TRUE(SameKind(lse[i], expected.lse[i])) << "lse[" << i << "] " << lse[i];
    if (!std::isfinite(lse[i])) continue;
    ASSERT_NEAR(lse[i], expected.lse[i], widen * 2e-6 * (1 + std::abs(expected.lse[i])))
        << "lse[" << i << "]";
  }
  const std::vector<float> weights = outputs->weights.ToFloats();
  for (std::size_t i = 0; i < expected.weights.size(); ++i) {
    ASSERT_TRUE(SameKind(weights[i], expected.weights[i])) << "weights[" << i << "] " << weights[i];
    if (!std::isfinite(weights[i])) continue;
    ASSERT_NEAR(weights[i], expected.weights[i], widen * 4e-6 * expected.weights[i] + 1e-37)
        << "weights[" << i << "]";
  }
  const std::vector<float> scores = outputs->scores.ToFloats();
  for (std::size_t i = 0; i < expected.scores.size(); ++i) {
    ASSERT_TRUE(SameKind(scores[i], expected.scores[i])) << "scores[" << i << "] " << scores[i];
    if (!std::isfinite(scores[i])) continue;
    ASSERT_NEAR(scores[i], expected.scores[i], widen * 1e-5 * (1 + std::abs(expected.scores[i])))
        << "scores[" << i << "]";
  }
}

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
  // Lengths around the steps of 16 and 64 rows and of 64 and 512 keys.
  for (const std::int64_t query_len : {0, 1, 15, 16, 17, 63, 64, 65, 129}) {
    for (const std::int64_t kv_len : {0, 1, 63, 64, 65, 127, 511, 512, 513, 600}) {
      sizes.push_back({1, 2, 1, query_len, kv_len, 8, 8});
    }
  }
  // pitfalls A50, A52: head sizes that are no multiple of a vector.
  for (const std::int64_t dim : {1,  2,  3,  5,  6,  7,   15,  16,  17,  31,  33,  63,
                                 64, 65, 72, 80, 96, 100, 127, 128, 136, 160, 256, 1024}) {
    sizes.push_back({1, 1, 1, 5, 70, dim, 8});
    sizes.push_back({1, 1, 1, 5, 70, 8, dim});
  }
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

TEST(Attention, MatchesReferenceAtEveryKeyLengthAroundVectors) {  // pitfalls A20
  for (std::int64_t kv_len = 1; kv_len <= 130; ++kv_len) {
    Request request = MakeRequest({1, 1, 1, 3, kv_len, 8, 8, DType::kBFloat16});
    request.boolean_mask = Bools({1, 1, 3, kv_len}, 7, 0.7);
    ExpectMatchesReference(request);
  }
}

// --- Options, one by one and together -----------------------------------------------------------

Request OptionRequest() { return MakeRequest({2, 4, 2, 37, 150, 16, 24}); }

TEST(AttentionOptions, Scale) {
  for (const float scale : {0.0f, -1.0f, 0.01f, 1.0f, 1e-35f}) {  // pitfalls A91
    Request request = OptionRequest();
    request.args.options.scale = scale;
    ExpectMatchesReference(request, 4);
  }
}

TEST(AttentionOptions, Softcap) {
  for (const float softcap : {0.5f, 2.0f, 50.0f}) {
    Request request = OptionRequest();
    request.args.options.softcap = softcap;
    ExpectMatchesReference(request, 4);
  }
}

TEST(AttentionOptions, Windows) {
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
  ExpectMatchesReference(request, 4);
  request.alibi_slopes = Normal(DType::kFloat32, {2, 4}, 5, 0.1f);
  request.args.options.alignment = Alignment::kLast;
  ExpectMatchesReference(request, 4);
}

TEST(AttentionOptions, Sinks) {
  Request request = OptionRequest();
  request.sinks =
      Tensor::FromFloats(DType::kFloat32, {4}, std::vector<float>{0.5f, -kInf, 3e30f, -200.0f});
  request.args.output.weights = true;
  ExpectMatchesReference(request, 2);
}

TEST(AttentionOptions, BlockMask) {
  Request request = MakeRequest({2, 4, 2, 130, 700, 16, 8});
  request.blocks = Bools({4, 3, 11}, 3, 0.4);
  ExpectMatchesReference(request);
  request.args.options.block_mask = BlockMask{128, 192, {}};
  request.blocks = Bools({2, 1, 2, 4}, 3, 0.5);
  request.args.options.causal = true;
  request.args.options.alignment = Alignment::kLast;
  ExpectMatchesReference(request);
}

TEST(AttentionOptions, MasksBroadcast) {  // pitfalls A16, A17
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
      ExpectMatchesReference(request, 4);
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
  ExpectMatchesReference(request, 4);
}

TEST(AttentionOptions, LengthsOfItems) {  // pitfalls A44
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
    ExpectMatchesReference(request, 8);
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

TEST(AttentionOptions, OutputDtypes) {
  for (const DType in : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const DType out : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      Request request = MakeRequest({1, 2, 2, 20, 40, 16, 21, in});
      request.args.output.dtype = out;
      ExpectMatchesReference(request);
    }
  }
}

// --- Layouts ------------------------------------------------------------------------------------

// The same tensor with axes 1 and 2 exchanged.
Tensor Exchanged(const Tensor& tensor) {
  const std::vector<float> values = tensor.ToFloats();
  const auto [b, m, n, d] =
      std::tuple{tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]};
  std::vector<float> out(values.size());
  for (std::int64_t i = 0; i < b; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      for (std::int64_t k = 0; k < n; ++k) {
        for (std::int64_t l = 0; l < d; ++l) {
          out[((i * n + k) * m + j) * d + l] = values[((i * m + j) * n + k) * d + l];
        }
      }
    }
  }
  return Tensor::FromFloats(tensor.dtype, {b, n, m, d}, out);
}

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

TEST(AttentionLayouts, PackedEqualsEachItemAlone) {
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

// --- Bits ---------------------------------------------------------------------------------------

TEST(AttentionBits, DoNotDependOnThreadsOrNeighbours) {  // pitfalls A92, A100
  const Sizes sizes{3, 4, 2, 100, 700, 32, 32};
  Request request = MakeRequest(sizes);
  request.args.options.causal = true;
  request.args.options.alignment = Alignment::kLast;
  request.args.kv_lengths = {700, 65, 300};
  Machine one(1);
  Machine three(3);
  const auto problem = AttentionProblem::Create(request.Args());
  const auto a = Compute(*problem, one);
  ASSERT_TRUE(a.ok());
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto b = Compute(*problem, three);
    ASSERT_TRUE(b.ok());
    EXPECT_EQ(a->output.data, b->output.data);
    EXPECT_EQ(a->lse.data, b->lse.data);
  }
  // The second item alone.
  Request alone = MakeRequest({1, 4, 2, 100, 700, 32, 32});
  const auto item = [](const Tensor& tensor) {
    const std::size_t bytes = tensor.data.size() / 3;
    Tensor part{tensor.dtype, tensor.shape, {}};
    part.shape[0] = 1;
    part.data.assign(tensor.data.begin() + bytes, tensor.data.begin() + 2 * bytes);
    return part;
  };
  alone.query = item(request.query);
  alone.key = item(request.key);
  alone.value = item(request.value);
  alone.args.options = request.args.options;
  alone.args.kv_lengths = {65};
  const auto c = Compute(*AttentionProblem::Create(alone.Args()), three);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(item(a->output).data, c->output.data);
}

TEST(AttentionBits, JobsOfOneBatchEqualJobsAlone) {
  Machine& machine = SharedMachine();
  std::vector<Request> requests;
  std::vector<AttentionProblem> problems;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(MakeRequest({1, 2, 1, 1 + 13 * i, 40 + 50 * i, 16, 16}, 10 * i));
  }
  for (const Request& request : requests) {
    problems.push_back(*AttentionProblem::Create(request.Args()));
  }
  std::vector<Outputs> together;
  std::vector<std::unique_ptr<TileJob>> jobs;
  std::vector<TileJob*> pointers;
  std::vector<absl::Status> statuses(problems.size(), absl::UnknownError("never finished"));
  for (const AttentionProblem& problem : problems) together.emplace_back(problem);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    AttentionJobHooks hooks;
    hooks.on_finished = [&statuses, i](absl::Status status) { statuses[i] = status; };
    auto job = MakeAttentionJob(machine.engine, problems[i], together[i].pointers(problems[i]),
                                std::move(hooks));
    ASSERT_TRUE(job.ok());
    jobs.push_back(*std::move(job));
    pointers.push_back(jobs.back().get());
  }
  machine.executor.Run(pointers);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    EXPECT_TRUE(statuses[i].ok()) << statuses[i];
    const auto alone = Compute(problems[i]);
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(alone->output.data, together[i].output.data);
  }
}

TEST(AttentionBits, PrimitivesAreBoundedWhateverTheLengths) {  // pitfalls B31
  Machine machine(1);
  for (int i = 0; i < 60; ++i) {
    const Request request =
        MakeRequest({1, 1, 1, 1 + (i * 37) % 200, 1 + (i * 211) % 1500, 16, 16});
    ASSERT_TRUE(Compute(*AttentionProblem::Create(request.Args()), machine).ok());
  }
  // 2 heights, 8 widths, 3 products.
  EXPECT_LE(machine.engine.primitives_created(), 2 * 8 * 3);
}

// --- What is not finite -------------------------------------------------------------------------

void Poison(Tensor& tensor, std::int64_t first, std::int64_t count, float with) {
  for (std::int64_t i = first; i < first + count; ++i) {
    StoreFloat(tensor.dtype, tensor.data.data() + i * SizeOf(tensor.dtype), with);
  }
}

TEST(AttentionNonFinite, ExcludedKeysAndValuesChangeNoBit) {  // pitfalls A32, A34, A35
  for (const float poison : {kNaN, kInf, -kInf, 1e38f}) {
    // Key 20 is masked for all rows, keys 60 and on are past the length.
    Request clean = MakeRequest({1, 1, 1, 30, 70, 8, 8});
    clean.args.kv_lengths = {60};
    clean.boolean_mask = Bools({70}, 1, 1.0);
    clean.boolean_mask->data[20] = std::byte{0};
    clean.alibi_slopes = Normal(DType::kFloat32, {1}, 4, 0.1f);
    Request dirty = clean;
    for (Tensor* tensor : {&dirty.key, &dirty.value}) {
      Poison(*tensor, 20 * 8, 8, poison);
      Poison(*tensor, 60 * 8, 10 * 8, poison);
    }
    const auto a = Compute(*AttentionProblem::Create(clean.Args()));
    const auto b = Compute(*AttentionProblem::Create(dirty.Args()));
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->output.data, b->output.data) << poison;
    EXPECT_EQ(a->lse.data, b->lse.data) << poison;
  }
}

TEST(AttentionNonFinite, CausalRowsBeforeAPoisonedKeyChangeNoBit) {  // pitfalls A28
  Request clean = MakeRequest({1, 1, 1, 100, 100, 8, 8});
  clean.args.options.causal = true;
  Request dirty = clean;
  Poison(dirty.key, 50 * 8 + 3, 1, kNaN);
  Poison(dirty.value, 50 * 8 + 3, 1, kNaN);
  const auto a = Compute(*AttentionProblem::Create(clean.Args()));
  const auto b = Compute(*AttentionProblem::Create(dirty.Args()));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(std::equal(a->output.data.begin(), a->output.data.begin() + 50 * 8 * 4,
                         b->output.data.begin()));
  const std::vector<float> values = b->output.ToFloats();
  for (std::size_t i = 50 * 8; i < values.size(); ++i) EXPECT_TRUE(std::isnan(values[i])) << i;
}

TEST(AttentionNonFinite, VisibleOnesReachTheRowsThatSeeThem) {  // pitfalls A37, A38
  for (const float poison : {kNaN, kInf, -kInf}) {
    for (const bool causal : {false, true}) {
      for (int which = 0; which < 3; ++which) {
        Request request = MakeRequest({2, 2, 1, 20, 90, 8, 8});
        request.args.options.causal = causal;
        request.args.options.alignment = Alignment::kLast;
        Tensor& tensor = which == 0 ? request.query : which == 1 ? request.key : request.value;
        Poison(tensor, 8 * 11 + 2, 1, poison);
        ExpectMatchesReference(request);
      }
    }
  }
}

TEST(AttentionNonFinite, OverflowingScoresGiveNaN) {
  Request request = MakeRequest({1, 1, 1, 4, 80, 8, 8});
  Poison(request.query, 8, 8, 3e38f);
  Poison(request.key, 5 * 8, 8, 3e38f);
  const auto outputs = Compute(*AttentionProblem::Create(request.Args()));
  ASSERT_TRUE(outputs.ok());
  const std::vector<float> values = outputs->output.ToFloats();
  for (int d = 0; d < 8; ++d) {
    EXPECT_TRUE(std::isfinite(values[d]));
    EXPECT_TRUE(std::isnan(values[8 + d]));
  }
}

TEST(AttentionNonFinite, MostNegativeFiniteMaskIsABias) {  // pitfalls A7
  Request request = MakeRequest({1, 1, 1, 1, 3, 4, 1});
  request.value = Tensor::FromFloats(DType::kFloat32, {1, 1, 3, 1}, std::vector<float>{1, 2, 3});
  request.additive_mask = Tensor::FromFloats(
      DType::kFloat32, {1, 3}, std::vector<float>(3, std::numeric_limits<float>::lowest()));
  const auto outputs = Compute(*AttentionProblem::Create(request.Args()));
  ASSERT_TRUE(outputs.ok());
  EXPECT_FLOAT_EQ(outputs->output.ToFloats()[0], 2);
}

TEST(AttentionNonFinite, LargeScoresStayFinite) {  // pitfalls A62
  Request request = MakeRequest({1, 1, 1, 8, 100, 8, 8});
  request.additive_mask = Tensor::FromFloats(DType::kFloat32, {1}, std::vector<float>{1000});
  ExpectMatchesReference(request, 100);
}

// --- Rows that see nothing ----------------------------------------------------------------------

TEST(AttentionEmptyRows, AreZerosAndChangeNoOtherBit) {  // pitfalls A1, A5
  Request all = MakeRequest({1, 1, 1, 6, 600, 8, 8});
  all.boolean_mask = Bools({6, 600}, 3, 0.5);
  Request one_empty = all;
  std::fill_n(one_empty.boolean_mask->data.begin() + 4 * 600, 600, std::byte{0});
  const auto a = Compute(*AttentionProblem::Create(all.Args()));
  const auto b = Compute(*AttentionProblem::Create(one_empty.Args()));
  ASSERT_TRUE(a.ok() && b.ok());
  const std::vector<float> x = a->output.ToFloats();
  const std::vector<float> y = b->output.ToFloats();
  for (int row = 0; row < 6; ++row) {
    for (int d = 0; d < 8; ++d) EXPECT_EQ(y[row * 8 + d], row == 4 ? 0.0f : x[row * 8 + d]);
  }
  EXPECT_EQ(b->lse.ToFloats()[4], -kInf);
}

TEST(AttentionEmptyRows, FirstKeyTilesExcludedForLateRows) {  // pitfalls A5
  Request request = MakeRequest({1, 1, 1, 600, 600, 8, 8});
  std::vector<float> mask(600 * 600, 0.0f);
  for (int i = 0; i < 600; ++i) {
    for (int j = 0; j < 600; ++j) {
      if (j > i || j + 10 < i) mask[i * 600 + j] = -kInf;
    }
  }
  request.additive_mask = Tensor::FromFloats(DType::kFloat32, {600, 600}, mask);
  ExpectMatchesReference(request);
}

// --- Memory and work ---------------------------------------------------------------------------

TEST(AttentionBounds, WorkingBytesCountItemsWithoutTokens) {
  Request request = MakeRequest({.batch = 1000, .query_len = 0, .kv_len = 0});
  const auto problem = AttentionProblem::Create(request.Args());
  ASSERT_TRUE(problem.ok());
  EXPECT_GE(WorkingBytes(*problem), 1000 * static_cast<std::int64_t>(sizeof(AttentionItem)));
}

TEST(AttentionBounds, RefusesMoreBlocksThanCanBeCountedQuickly) {
  Request request = MakeRequest({.batch = 4096, .query_len = 1, .kv_len = 1});
  request.key = *Tensor::Zeros(DType::kFloat32, {1, 1, 1 << 19, 1});
  request.value = request.key;
  request.blocks = Bools({1, 1, 1, 1 << 13}, 1, 0.5);
  const auto problem = AttentionProblem::Create(request.Args());
  ASSERT_FALSE(problem.ok());
  EXPECT_EQ(GetFieldViolation(problem.status())->field, "options.block_mask.blocks");
}

TEST(AttentionStop, IsAskedWhileValuesThatAreNotFiniteAreAdded) {
  Request request = MakeRequest({.query_len = 1, .kv_len = 64});
  for (std::int64_t i = 0; i < 64; ++i) Poison(request.value, i, 1, kInf);
  const auto problem = AttentionProblem::Create(request.Args());
  Outputs outputs(*problem);
  // Gathering asks three times (keys, values, padding), the tile twice before it adds values.
  int asked = 0;
  absl::Status result;
  AttentionJobHooks hooks;
  hooks.should_stop = [&] { return ++asked == 6; };
  hooks.on_finished = [&](absl::Status status) { result = status; };
  Machine one(1);
  auto job = MakeAttentionJob(one.engine, *problem, outputs.pointers(*problem), std::move(hooks));
  ASSERT_TRUE(job.ok());
  TileJob* const jobs[] = {job->get()};
  one.executor.Run(jobs);
  EXPECT_EQ(result.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 6);
}

// --- Stopping -----------------------------------------------------------------------------------

TEST(AttentionStop, IsAskedBeforeTilesAndReported) {
  Machine& machine = SharedMachine();
  const Request request = MakeRequest({1, 4, 4, 300, 300, 16, 16});
  const auto problem = AttentionProblem::Create(request.Args());
  Outputs outputs(*problem);
  std::atomic<int> asked{0};
  absl::Status result;
  AttentionJobHooks hooks;
  hooks.should_stop = [&] { return ++asked > 3; };
  hooks.on_finished = [&](absl::Status status) { result = status; };
  auto job =
      MakeAttentionJob(machine.engine, *problem, outputs.pointers(*problem), std::move(hooks));
  ASSERT_TRUE(job.ok());
  TileJob* const jobs[] = {job->get()};
  machine.executor.Run(jobs);
  EXPECT_EQ(result.code(), absl::StatusCode::kCancelled);
  EXPECT_LE(asked, 3 + 3);  // each worker asks at most once more
}

}  // namespace
}  // namespace attend::testing

// What the fast path promises beside its numbers: the same bits in any company, nothing that leaks,
// rows that see nothing, bounds on memory, and stopping when asked.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/attention/attention.h"
#include "core/base/status.h"
#include "tests/unit/core/attention_check.h"

namespace attend::testing {
namespace {

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
  const auto second = Compute(*AttentionProblem::Create(Alone(request, 1).Args()), three);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(ItemOf(a->output, 1).data, second->output.data);
}

TEST(AttentionBits, OfABatchThatSharesKeysDoNotDependOnThreads) {  // pitfalls A98
  Request request = MakeRequest({2, 1, 1, 40, 40, 20, 20});
  request.key = Normal(DType::kFloat32, {1, 1, 40, 20}, 5);
  request.value = Normal(DType::kFloat32, {1, 1, 40, 20}, 6);
  Machine one(1);
  ExpectMatchesReference(request, Accuracy::kUnitVariance, one);
  for (const int threads : {2, 5, 0}) {
    Machine others(threads);
    ExpectSameBits(request, request, one, others);
  }
}

TEST(AttentionBits, JobsOfOneBatchEqualJobsAlone) {  // pitfalls A43, A92
  Machine& machine = SharedMachine();
  std::vector<Request> requests;
  std::vector<AttentionProblem> problems;
  for (int i = 0; i < 12; ++i) {
    // Two of them have nothing to compute.
    const std::int64_t queries = i == 3 ? 0 : 1 + 13 * i;
    const std::int64_t keys = i == 7 ? 0 : 40 + 50 * i;
    requests.push_back(MakeRequest({1, 2, 1, queries, keys, 16, 16}, 10 * i));
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
  // 8 widths, 2 products.
  EXPECT_LE(machine.engine.primitives_created(), 8 * 2);
}

// --- What is not finite -------------------------------------------------------------------------

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
  // Without a mask, and with each kind that excludes what may be padding.
  for (const int mask : {0, 1, 2}) {
    SCOPED_TRACE(mask);
    if (mask == 1) {
      clean.boolean_mask = Bools({100}, 1, 1);
      std::fill_n(clean.boolean_mask->data.begin() + 90, 10, std::byte{0});
    } else if (mask == 2) {
      clean.boolean_mask.reset();
      clean.additive_mask = Normal(DType::kFloat32, {100}, 5);
      Poison(*clean.additive_mask, 90, 10, -kInf);
    }
    Request dirty = clean;
    Poison(dirty.key, 50 * 8 + 3, 1, kNaN);
    Poison(dirty.value, 50 * 8 + 3, 1, kNaN);
    const Outputs a = MustCompute(clean);
    const Outputs b = MustCompute(dirty);
    EXPECT_TRUE(std::equal(a.output.data.begin(), a.output.data.begin() + 50 * 8 * 4,
                           b.output.data.begin()));
    const std::vector<float> values = b.output.ToFloats();
    for (std::size_t i = 50 * 8; i < values.size(); ++i) EXPECT_TRUE(std::isnan(values[i])) << i;
  }
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

TEST(AttentionNonFinite, AQueryFullOfNaNGivesNaNToItsItemAlone) {  // pitfalls A37
  for (const std::int64_t queries : {5, 40}) {
    Request clean = MakeRequest({2, 2, 1, queries, 90, 8, 8});
    Request dirty = clean;
    Poison(dirty.query, 2 * queries * 8, 2 * queries * 8, kNaN);  // item 1
    const Outputs a = MustCompute(clean);
    const Outputs b = MustCompute(dirty);
    EXPECT_EQ(ItemOf(a.output, 0).data, ItemOf(b.output, 0).data);
    for (const float x : ItemOf(b.output, 1).ToFloats()) EXPECT_TRUE(std::isnan(x));
    for (const float x : ItemOf(b.lse, 1).ToFloats()) EXPECT_TRUE(std::isnan(x));
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
  ExpectMatchesReference(request, Accuracy::kAnyScores);
  // Scores of 1000, 1004 and 1008 of the keys themselves, in whole vectors and in what is left.
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const std::int64_t kv_len : {1, 7, 37, 600}) {
      for (const std::int64_t query_len : {1, 17}) {
        request = MakeRequest({1, 1, 1, query_len, kv_len, 1, 5, dtype});
        Poison(request.query, 0, query_len, 1);
        for (std::int64_t j = 0; j < kv_len; ++j) {
          Poison(request.key, j, 1, 1000 + 4 * static_cast<float>(j % 3));
        }
        request.args.output.dtype = DType::kFloat32;
        ExpectMatchesReference(request, Accuracy::kAnyScores);
      }
    }
  }
}

// --- Rows that see nothing ----------------------------------------------------------------------

// The bits of row 4 of one output are those of `empty`, and those of the others what they were.
void ExpectOnlyRow4Changed(const Tensor& before, const Tensor& after, float empty) {
  Tensor expected = before;
  const std::int64_t columns = before.shape.size() == 4 ? before.shape[3] : 1;
  Poison(expected, 4 * columns, columns, empty);
  EXPECT_EQ(expected.data, after.data);
}

TEST(AttentionEmptyRows, AreZerosAndChangeNoOtherBit) {  // pitfalls A1, A4, A5
  // Few rows and gathered ones; on one key tile, on several, and in parts.
  for (const std::int64_t query_len : {6, 20}) {
    for (const std::int64_t kv_len : {10, 600, 4200}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        Request all = MakeRequest({1, 1, 1, query_len, kv_len, 8, 8, dtype});
        all.args.output.weights = true;
        all.boolean_mask = Bools({query_len, kv_len}, 3, 0.5);
        Request one_empty = all;
        std::fill_n(one_empty.boolean_mask->data.begin() + 4 * kv_len, kv_len, std::byte{0});
        const Outputs before = MustCompute(all);
        const Outputs after = MustCompute(one_empty);
        ExpectOnlyRow4Changed(before.output, after.output, 0);
        ExpectOnlyRow4Changed(before.weights, after.weights, 0);
        ExpectOnlyRow4Changed(before.lse, after.lse, -kInf);
      }
    }
  }
}

TEST(AttentionEmptyRows, OfEmptyItemsLeaveTheOthersAlone) {  // pitfalls A44
  for (const bool queries_too : {false, true}) {
    Request request = MakeRequest({4, 2, 1, 128, 128, 16, 8});
    request.args.kv_lengths = {96, 0, 0, 128};
    if (queries_too) request.args.query_lengths = {96, 0, 0, 128};
    const Outputs together = MustCompute(request);
    for (std::int64_t b = 0; b < 4; ++b) {
      const Outputs alone = MustCompute(Alone(request, b));
      EXPECT_EQ(alone.output.data, ItemOf(together.output, b).data) << b;
      EXPECT_EQ(alone.lse.data, ItemOf(together.lse, b).data) << b;
      if (request.args.kv_lengths[b] != 0) continue;
      for (const float x : alone.output.ToFloats()) ASSERT_EQ(x, 0);
      for (const float x : alone.lse.ToFloats()) ASSERT_EQ(x, -kInf);
    }
  }
}

TEST(AttentionEmptyRows, FirstKeyTilesExcludedForLateRows) {  // pitfalls A5
  // The keys before the last 10 are masked: by numbers, with what causality excludes, and by bools.
  for (const bool causal : {false, true}) {
    Request request = MakeRequest({1, 1, 1, 600, 600, 8, 8});
    request.args.options.causal = causal;
    request.additive_mask = *Tensor::Zeros(DType::kFloat32, {600, 600});
    request.boolean_mask = Bools({600, 600}, 1, 1);
    for (std::int64_t i = 0; i < 600; ++i) {
      const std::int64_t old = std::max<std::int64_t>(i - 10, 0);
      if (causal) {
        std::fill_n(request.boolean_mask->data.begin() + i * 600, old, std::byte{0});
      } else {
        Poison(*request.additive_mask, i * 600, old, -kInf);
        Poison(*request.additive_mask, i * 600 + i + 1, 599 - i, -kInf);
      }
    }
    (causal ? request.additive_mask : request.boolean_mask).reset();
    ExpectMatchesReference(request);
    for (Tensor* tensor : {&request.query, &request.key, &request.value}) {
      Poison(*tensor, 0, 600 * 8, 1);
    }
    for (const float x : MustCompute(request).output.ToFloats()) ASSERT_NEAR(x, 1, 4e-6);
  }
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

// --- Stopping -----------------------------------------------------------------------------------

TEST(AttentionStop, IsAskedWhileValuesThatAreNotFiniteAreAdded) {
  Request request = MakeRequest({.query_len = 17, .kv_len = 64});
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

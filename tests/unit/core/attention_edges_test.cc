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
  ExpectMatchesReference(request, Accuracy::kAnyScores);
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

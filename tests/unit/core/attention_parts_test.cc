// Items whose keys are cut into parts, at multiples of 4096: against the float64 reference, and
// what is promised of their bits.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/core/attention_check.h"

namespace attend::testing {
namespace {

constexpr std::int64_t kPart = 4096;
constexpr std::int64_t kDim = 16;

// One KV head: heads of its group, and queries.
struct Rows {
  std::int64_t heads;
  std::int64_t queries;
};
// Few rows, which read keys and values as they came, and more, up to one tile, which gather them.
constexpr Rows kOfBoth[] = {{1, 1}, {2, 2}, {1, 17}};

Request PartedRequest(Rows rows, std::int64_t kv_len, DType dtype = DType::kFloat32) {
  return MakeRequest({1, rows.heads, 1, rows.queries, kv_len, kDim, kDim, dtype});
}

std::string NameOf(Rows rows) {
  return std::to_string(rows.heads) + " heads, " + std::to_string(rows.queries) + " queries";
}

// --- Lengths ------------------------------------------------------------------------------------

TEST(AttentionParts, OfFewRowsMatchReference) {
  for (const Rows rows : {Rows{1, 1}, Rows{4, 2}}) {
    for (const std::int64_t kv_len : {4095, 4096, 4097, 8192, 8193, 10000}) {
      SCOPED_TRACE(NameOf(rows) + ", keys " + std::to_string(kv_len));
      ExpectMatchesReference(PartedRequest(rows, kv_len));
    }
  }
  ExpectMatchesReference(MakeRequest({1, 3, 1, 1, 4100, 20, 5, DType::kBFloat16}));
  ExpectMatchesReference(MakeRequest({2, 4, 2, 1, 4100, 32, 48, DType::kFloat16}));
}

TEST(AttentionParts, OfGatheredRowsMatchReference) {
  for (const std::int64_t kv_len : {4095, 4096, 4097, 8192, 8193, 10000}) {
    SCOPED_TRACE(kv_len);
    ExpectMatchesReference(PartedRequest({1, 17}, kv_len));
  }
  ExpectMatchesReference(PartedRequest({4, 16}, 4200, DType::kBFloat16));
  ExpectMatchesReference(MakeRequest({1, 2, 1, 9, 4100, 20, 5, DType::kFloat16}));
}

TEST(AttentionParts, OfItemsOfAllLengthsMatchReference) {
  Request request = MakeRequest({6, 2, 1, 20, 8200, kDim, kDim});
  request.args.query_lengths = {1, 20, 1, 20, 0, 3};
  request.args.kv_lengths = {8200, 4097, 0, 0, 8200, 4096};
  for (const bool causal : {false, true}) {
    request.args.options.causal = causal;
    request.args.options.alignment = Alignment::kLast;
    ExpectMatchesReference(request);
  }
}

// --- Options ------------------------------------------------------------------------------------

TEST(AttentionParts, ThatOnlySomeRowsSeeWhenCausal) {
  for (const Rows rows : {Rows{1, 5}, Rows{4, 4}, Rows{1, 17}, Rows{4, 16}}) {
    SCOPED_TRACE(NameOf(rows));
    // The first row sees one part less than the last.
    Request request = PartedRequest(rows, kPart + 2);
    request.args.options.causal = true;
    request.args.options.alignment = Alignment::kLast;
    ExpectMatchesReference(request);
  }
}

TEST(AttentionParts, ThatWindowsLeaveEmpty) {
  for (const Rows rows : kOfBoth) {
    SCOPED_TRACE(NameOf(rows));
    Request request = PartedRequest(rows, 8300);
    request.args.options.window_left = 100;
    request.args.options.window_right = 10;
    request.args.options.alignment = Alignment::kOffsets;
    // In the last part, in the first, in the middle one, around a bound, and nowhere.
    for (const std::int64_t offset : {8290, 3, 6000, 4096, 8180, 20000}) {
      request.args.options.query_offsets = {offset};
      ExpectMatchesReference(request);
    }
  }
}

TEST(AttentionParts, ThatMasksLeaveEmpty) {  // pitfalls A4, A5
  for (const Rows rows : kOfBoth) {
    SCOPED_TRACE(NameOf(rows));
    Request request = PartedRequest(rows, 8300);
    request.boolean_mask = Bools({rows.heads, rows.queries, 8300}, 4, 0.7);
    std::vector<std::byte>& mask = request.boolean_mask->data;
    std::fill_n(mask.begin(), kPart, std::byte{0});  // row 0 from the second part on
    if (rows.queries > 1) std::fill_n(mask.begin() + 8300, 8300, std::byte{0});  // row 1 nothing
    ExpectMatchesReference(request);
    request.boolean_mask.reset();
    request.blocks = Bools({1, 130}, 5, 0.8);
    std::fill_n(request.blocks->data.begin() + 64, 64, std::byte{0});  // the second part
    ExpectMatchesReference(request);
    request.blocks = Bools({rows.heads, 1, 130}, 5, 0.5);
    ExpectMatchesReference(request);
  }
}

// Adds a bias of its own to each part's scores.
void AddBiases(Request& request, const std::vector<float>& biases) {
  const std::int64_t kv_len = request.key.shape[2];
  request.additive_mask = *Tensor::Zeros(DType::kFloat32, {kv_len});
  for (std::int64_t j = 0; j < kv_len; ++j) {
    Poison(*request.additive_mask, j, 1, biases[j / kPart]);
  }
}

TEST(AttentionParts, OfUnlikeScoresMatchReference) {
  for (const Rows rows : kOfBoth) {
    for (const std::vector<float>& biases : std::vector<std::vector<float>>{
             {30, 0, 29}, {-1000, 0, 1000}, {1000, 0, -1000}, {0, -kInf, 1}}) {
      SCOPED_TRACE(NameOf(rows) + ::testing::PrintToString(biases));
      Request request = PartedRequest(rows, 8300);
      AddBiases(request, biases);
      ExpectMatchesReference(request, Accuracy::kAnyScores);
    }
  }
}

TEST(AttentionParts, TakeASinkOnce) {
  for (const Rows rows : kOfBoth) {
    for (const float sink : {-kInf, 0.5f, 9.0f, 3e30f}) {
      SCOPED_TRACE(NameOf(rows) + ", sink " + std::to_string(sink));
      Request request = PartedRequest(rows, 4200);
      request.sinks =
          Tensor::FromFloats(DType::kFloat32, {rows.heads}, std::vector<float>(rows.heads, sink));
      ExpectMatchesReference(request);
    }
  }
}

TEST(AttentionParts, TakeScaleSoftcapAndAlibi) {
  for (const Rows rows : kOfBoth) {
    SCOPED_TRACE(NameOf(rows));
    Request request = PartedRequest(rows, 4200);
    for (const float scale : {-1.0f, 0.0f, 0.02f, 1e-35f}) {
      request.args.options.scale = scale;
      ExpectMatchesReference(request, Accuracy::kAnyScores);
    }
    request.args.options.scale.reset();
    request.args.options.softcap = 2;
    request.alibi_slopes = Normal(DType::kFloat32, {rows.heads}, 5, 0.002f);
    request.args.options.alignment = Alignment::kLast;
    ExpectMatchesReference(request, Accuracy::kAnyScores);
  }
}

TEST(AttentionParts, GiveWeightsAndScores) {
  // One thread, and two KV heads: each is joined after the other's parts were computed.
  Machine one(1);
  for (const std::int64_t queries : {1, 3, 17}) {
    for (const ScoreStage stage : {ScoreStage::kScaled, ScoreStage::kBiased}) {
      SCOPED_TRACE(queries);
      Request request = MakeRequest({1, 2, 2, queries, 4200, kDim, kDim});
      request.args.options.causal = true;
      request.args.options.alignment = Alignment::kLast;
      request.args.output = {.lse = true, .weights = true, .scores = stage};
      ExpectMatchesReference(request, Accuracy::kAnyScores, one);
    }
  }
}

// --- What is not finite -------------------------------------------------------------------------

TEST(AttentionParts, SeenThatAreNotFiniteMatchReference) {  // pitfalls A37
  for (const Rows rows : kOfBoth) {
    for (const float poison : {kNaN, -kInf}) {
      for (const bool key : {true, false}) {
        SCOPED_TRACE(NameOf(rows) + ", " + std::to_string(poison));
        // Causal, so that where there are several queries the first of them do not see it.
        Request request = PartedRequest(rows, 4200);
        request.args.options.causal = true;
        request.args.options.alignment = Alignment::kLast;
        Poison(key ? request.key : request.value, 4199 * kDim + 3, 1, poison);
        ExpectMatchesReference(request);
        Poison(key ? request.key : request.value, 70 * kDim + 5, 1, poison);
        ExpectMatchesReference(request);
      }
    }
  }
}

TEST(AttentionParts, UnseenThatAreNotFiniteChangeNoBit) {  // pitfalls A32, A35
  for (const Rows rows : kOfBoth) {
    for (const float poison : {kNaN, kInf, -kInf, 1e38f}) {
      SCOPED_TRACE(NameOf(rows) + ", " + std::to_string(poison));
      // Masked in the first part and in the second, and past the length in the second.
      Request clean = PartedRequest(rows, 8192);
      clean.boolean_mask = Bools({8192}, 1, 0.9);
      for (const int key : {70, 4099}) clean.boolean_mask->data[key] = std::byte{0};
      clean.args.kv_lengths = {5000};
      clean.args.output = {.lse = true, .weights = true, .scores = ScoreStage::kBiased};
      Request dirty = clean;
      for (Tensor* tensor : {&dirty.key, &dirty.value}) {
        for (const int key : {70, 4099, 5000, 5001}) Poison(*tensor, key * kDim, kDim, poison);
      }
      ExpectSameBits(clean, dirty);
    }
  }
}

TEST(AttentionParts, OfAnInfiniteScoreMakeItsRowNaNAndNoOther) {  // pitfalls A38
  for (const Rows rows : {Rows{1, 4}, Rows{1, 17}}) {
    for (const std::int64_t key : {5, 5000}) {
      Request request = PartedRequest(rows, 9000);
      Poison(request.query, kDim, kDim, 1e30f);  // query 1
      Poison(request.key, key * kDim, kDim, 1e30f);
      const auto outputs = Compute(*AttentionProblem::Create(request.Args()));
      ASSERT_TRUE(outputs.ok());
      const std::vector<float> values = outputs->output.ToFloats();
      for (std::int64_t row = 0; row < rows.queries; ++row) {
        EXPECT_EQ(std::isnan(outputs->lse.ToFloats()[row]), row == 1) << row;
        for (std::int64_t d = 0; d < kDim; ++d) {
          EXPECT_EQ(std::isnan(values[row * kDim + d]), row == 1) << row;
        }
      }
    }
  }
}

// --- Bits ---------------------------------------------------------------------------------------

// Items of one part and of several, of few rows, of more, and (two tiles) of too many for parts.
Request BatchOfParts(std::int64_t key_batch) {
  Request request = MakeRequest({5, 2, 1, 33, 9000, kDim, kDim, DType::kBFloat16});
  request.key = Normal(DType::kBFloat16, {key_batch, 1, 9000, kDim}, 2);
  request.value = Normal(DType::kBFloat16, {key_batch, 1, 9000, kDim}, 3);
  request.args.query_lengths = {1, 8, 12, 33, 2};
  request.args.kv_lengths = {9000, 4097, 8193, 4200, 300};
  return request;
}

TEST(AttentionPartsBits, DoNotDependOnThreads) {  // pitfalls A100
  Machine one(1);
  Machine two(2);
  for (const std::int64_t key_batch : {1, 5}) {
    const Request request = BatchOfParts(key_batch);
    for (int repeat = 0; repeat < 3; ++repeat) ExpectSameBits(request, request, one, two);
  }
}

TEST(AttentionPartsBits, DoNotDependOnNeighbours) {  // pitfalls A92
  for (const std::int64_t key_batch : {1, 5}) {
    const Request request = BatchOfParts(key_batch);
    ExpectMatchesReference(request);
    const auto together = Compute(*AttentionProblem::Create(request.Args()));
    ASSERT_TRUE(together.ok());
    for (int b = 0; b < 5; ++b) {
      const auto alone = Compute(*AttentionProblem::Create(Alone(request, b).Args()));
      ASSERT_TRUE(alone.ok());
      EXPECT_EQ(alone->output.data, ItemOf(together->output, b).data) << b;
      EXPECT_EQ(alone->lse.data, ItemOf(together->lse, b).data) << b;
    }
  }
}

// A part whose keys no row sees leaves no trace: keys past the length may be there or not.
TEST(AttentionPartsBits, DoNotDependOnPartsThatNobodySees) {
  for (const Rows rows : kOfBoth) {
    Request request = PartedRequest(rows, 10000);
    request.args.options.causal = true;
    request.args.options.alignment = Alignment::kOffsets;
    request.args.options.query_offsets = {4000};
    Request shorter = request;
    shorter.args.kv_lengths = {4096};
    ExpectSameBits(request, shorter);
  }
}

// --- Memory and stopping ------------------------------------------------------------------------

TEST(AttentionPartsMemory, CountsTheirResults) {
  const Request whole = MakeRequest({1, 16, 2, 1, 4096, 16, 64});
  const Request parted = MakeRequest({1, 16, 2, 1, 3 * 4096, 16, 64});
  const std::int64_t more = WorkingBytes(*AttentionProblem::Create(parted.Args())) -
                            WorkingBytes(*AttentionProblem::Create(whole.Args()));
  // 3 parts of 2 heads of 8 rows, each of 64 sums and a state.
  EXPECT_GT(more, 3 * 2 * 8 * 64 * 4);
  EXPECT_LT(more, 2 * 3 * 2 * 8 * 64 * 4);
}

struct Stopped {
  int asked = 0;
  absl::Status status;
  Tensor output;
};

// Runs a request on one thread until it has been asked `times` whether to stop.
Stopped StopAfter(const Request& request, int times) {
  const auto problem = AttentionProblem::Create(request.Args());
  Outputs outputs(*problem);
  Stopped stopped;
  AttentionJobHooks hooks;
  hooks.should_stop = [&] { return ++stopped.asked == times; };
  hooks.on_finished = [&](absl::Status status) { stopped.status = std::move(status); };
  Machine one(1);
  auto job = MakeAttentionJob(one.engine, *problem, outputs.pointers(*problem), std::move(hooks));
  EXPECT_TRUE(job.ok());
  TileJob* const jobs[] = {job->get()};
  one.executor.Run(jobs);
  stopped.output = std::move(outputs.output);
  return stopped;
}

TEST(AttentionPartsStop, IsAskedBeforeEachPartAndItsTilesAndBeforeTheyAreJoined) {
  // Padding, then for each of three parts itself and its tiles of 512 keys, then the join.
  const Request request = PartedRequest({1, 1}, 9000);
  constexpr int kAsked = 1 + (1 + 8) + (1 + 8) + (1 + 2) + 1;
  const Stopped never = StopAfter(request, 0);
  EXPECT_TRUE(never.status.ok());
  EXPECT_EQ(never.asked, kAsked);
  const std::vector<std::byte> nothing(kDim * sizeof(float), std::byte{0x5a});
  for (int times = 1; times <= kAsked; ++times) {
    const Stopped stopped = StopAfter(request, times);
    EXPECT_EQ(stopped.status.code(), absl::StatusCode::kCancelled) << times;
    EXPECT_EQ(stopped.asked, times);
    EXPECT_EQ(stopped.output.data, nothing) << times;
  }
}

TEST(AttentionPartsStop, IsAskedBetweenPartsOfGatheredRows) {
  const Request request = PartedRequest({1, 17}, 9000);
  const Stopped never = StopAfter(request, 0);
  EXPECT_TRUE(never.status.ok());
  // 9 units gather keys and 9 values; padding, parts and join as for few rows.
  EXPECT_EQ(never.asked, 18 + 1 + (1 + 8) + (1 + 8) + (1 + 2) + 1);
  EXPECT_EQ(StopAfter(request, 18 + 1 + 9 + 1).status.code(), absl::StatusCode::kCancelled);
}

TEST(AttentionPartsStop, IsAskedWhileValuesThatAreNotFiniteAreAdded) {
  Request request = PartedRequest({1, 1}, 4200);
  for (std::int64_t key = 0; key < 128; ++key) Poison(request.value, key * kDim, 1, kInf);
  // Padding, two parts (8 tiles and 1), the join, and then every 64 keys.
  constexpr int kBefore = 1 + (1 + 8) + (1 + 1) + 1;
  const Stopped stopped = StopAfter(request, kBefore + 2);
  EXPECT_EQ(stopped.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(stopped.asked, kBefore + 2);
}

}  // namespace
}  // namespace attend::testing

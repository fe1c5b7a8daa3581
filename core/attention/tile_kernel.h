// The kernel: one tile of queries of one KV head against all keys that they see.
#ifndef ATTEND_CORE_ATTENTION_TILE_KERNEL_H_
#define ATTEND_CORE_ATTENTION_TILE_KERNEL_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "core/attention/attention.h"
#include "core/attention/key_value.h"
#include "core/base/aligned_buffer.h"
#include "core/base/attention_problem.h"
#include "core/executor/tile_job.h"
#include "core/gemm/tile_gemm.h"
#include "core/simd/softmax_pass.h"

namespace attend {

inline constexpr std::int64_t kMaxQueryTile = 64;  // rows
inline constexpr std::int64_t kMaxKeyTile = 512;   // keys

// Tiles are cut from the rows of a KV head of an item (see RowsOfItem), so that one tile serves a
// whole group of heads at neighbouring positions.
std::int64_t TilesOfItem(const AttentionProblem& problem, const AttentionItem& item);

// Where a head of an item is one tile, its keys are cut at multiples of this many, into parts that
// different threads may work on. The positions depend on nothing else, so that bits do not.
inline constexpr std::int64_t kPartKeys = 4096;
std::int64_t PartsOfTile(const AttentionProblem& problem, const AttentionItem& item);

// Scratch memory of one slot of the executor. Grows to the largest tile it has met, and stays.
class TileScratch {
 public:
  explicit TileScratch(TileGemmCache& cache) : runner(cache) {}

  // False if memory could not be had.
  bool Reserve(std::int64_t padded_head_dim, std::int64_t padded_value_dim);

  TileGemmRunner runner;
  AlignedBuffer query;   // [kMaxQueryTile, padded head_dim]
  AlignedBuffer output;  // [kMaxQueryTile, padded value_dim]
  AlignedBuffer terms;   // [kMaxQueryTile, padded value_dim], of one key tile
  AlignedBuffer scores;  // [kMaxQueryTile, kMaxKeyTile]
  AlignedBuffer bias;    // [kMaxKeyTile]
  AlignedBuffer row;     // [max(padded dims, kMaxKeyTile)]
  AlignedBuffer staged;  // [kStagedRows, max(padded dims)]

 private:
  std::int64_t head_dim_ = 0;
  std::int64_t value_dim_ = 0;
};

// What tiles need to know of their request.
struct TileContext {
  const AttentionProblem& problem;
  const RowReader& keys;
  const RowReader& values;
  const AttentionOutputs& outputs;
  TileGemmCache& gemms;
  const std::function<bool()>& should_stop;
};

// One tile of an item's KV head. Made, run once (as a whole, as a part, or to join parts), and
// dropped. Lets others run between its key tiles.
class TileKernel {
 public:
  // `scratch` is of the worker's slot.
  TileKernel(const TileContext& context, TileScratch& scratch, Worker& worker, std::int64_t item,
             std::int64_t kv_head, std::int64_t tile);

  // Computes the tile's rows of every output that is wanted. CANCELLED if should_stop says so.
  absl::Status Run();

  // The same in two steps. A part's result is PartFloats floats at a multiple of 64 bytes.
  static std::int64_t PartFloats(const AttentionProblem& problem, const AttentionItem& item);
  absl::Status RunPart(std::int64_t part, float* result);
  absl::Status JoinParts(std::int64_t parts, float* results);

 private:
  // A row of the tile.
  struct Row {
    std::int64_t query = 0;  // index in the item
    std::int64_t head = 0;   // query head
    KeyRange keys;           // by length, causality and window
    float inverse = 0;       // of the denominator; NaN for a NaN row
    bool sees_any = false;   // whether any key is left to it
  };

  bool PauseAndGoOn();
  const float* QueriesInPlace() const;
  void PackQueries();
  absl::Status Accumulate(KeyRange keys);
  absl::Status Finish();
  void SavePart(float* result) const;
  void AddPart(float* result, bool first);
  absl::Status RunKeyTile(std::int64_t first_key, std::int64_t count, bool first);
  absl::Status Multiply(std::int64_t n, std::int64_t k, bool transpose, const float* a,
                        const float* b, float* c);
  absl::Status Scores(std::int64_t first_key, std::int64_t count);
  absl::Status Terms(std::int64_t first_key, std::int64_t count, float* terms);
  template <typename Body>
  void ForSourceRows(const RowReader& reader, bool finite_only, std::int64_t first_key,
                     std::int64_t count, Body body);
  void ScoresOfSource(std::int64_t first_key, std::int64_t count);
  void TermsOfSource(std::int64_t first_key, std::int64_t count, float* terms);
  void RescoreNonFiniteKeys(std::int64_t first_key, std::int64_t count);
  void FinishScores(Row& row, std::int64_t first_key, ColumnRange columns, float* scores);
  bool BlocksExclude(std::int64_t first_key, std::int64_t count) const;

  ColumnRange ColumnsOf(const Row& row, std::int64_t first_key, std::int64_t count) const;
  bool HasBias() const;
  ScoreTransform TransformOf(const Row& row, std::int64_t first_key) const;
  void BuildBias(const Row& row, std::int64_t first_key, ColumnRange columns, float* bias) const;
  bool Visible(const Row& row, std::int64_t key) const;

  void Normalize(Row& row, SoftmaxRow& state) const;
  void NormalizeOutput();
  void StoreRows();
  absl::Status AddNonFiniteValues();
  bool WantsDetails() const;
  absl::Status StoreDetails();
  void StoreDetailRow(std::int64_t r, std::int64_t first_key, std::int64_t count, float* scores);

  const TileContext& context_;
  const AttentionProblem& problem_;
  TileScratch& scratch_;
  Worker& worker_;
  const std::int64_t item_index_;
  const AttentionItem& item_;
  const std::int64_t kv_head_;
  const std::int64_t head_dim_;     // padded
  const std::int64_t value_dim_;    // padded
  const bool few_rows_;             // read keys and values as they came
  const bool plain_;                // nothing but a factor between product and softmax
  const float factor_;              // log2(e) times what turns a score, as it is kept, into a logit
  const float* queries_ = nullptr;  // [num_rows_, head_dim_], and zeros up to the products' height
  bool non_finite_values_ = false;  // met by rows that read them as they came
  bool normalized_ = false;         // the output is divided by its rows' denominators
  std::int64_t first_row_ = 0;
  std::int64_t num_rows_ = 0;
  KeyRange keys_;  // that any row may see, from a multiple of kKeyStep
  Row rows_[kMaxQueryTile];
  SoftmaxRow states_[kMaxQueryTile];  // of the rows
};

}  // namespace attend

#endif  // ATTEND_CORE_ATTENTION_TILE_KERNEL_H_

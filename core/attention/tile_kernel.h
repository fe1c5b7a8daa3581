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
#include "core/gemm/tile_gemm.h"
#include "core/simd/softmax_pass.h"

namespace attend {

inline constexpr std::int64_t kMaxQueryTile = 64;  // rows
inline constexpr std::int64_t kMaxKeyTile = 512;   // keys

// Rows of one KV head of an item: query row i of the group's head g is row i * group_size + g, so
// that one tile serves a whole group at neighbouring positions.
//
// Height of the tiles of an item: it depends on the item's own rows alone, since a product's bits
// may depend on it.
std::int64_t QueryTileRows(std::int64_t rows);

// The rows of a KV head of an item.
std::int64_t RowsOfItem(const AttentionProblem& problem, const AttentionItem& item);

// Scratch memory of one worker. Grows to the largest tile it has met, and stays.
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

// One tile of an item's KV head. Made, run once, and dropped.
class TileKernel {
 public:
  TileKernel(const TileContext& context, TileScratch& scratch, std::int64_t item,
             std::int64_t kv_head, std::int64_t tile);

  // Computes the tile's rows of every output that is wanted. CANCELLED if should_stop says so.
  absl::Status Run();

 private:
  // A row of the tile.
  struct Row {
    std::int64_t query = 0;  // index in the item
    std::int64_t head = 0;   // query head
    KeyRange keys;           // by length, causality and window
    SoftmaxRow state;
    float inverse = 0;      // of the denominator; NaN for a NaN row
    bool sees_any = false;  // whether any key is left to it
  };
  // Columns [begin, end) of a key tile that a row may see.
  struct Columns {
    std::int64_t begin;
    std::int64_t end;
  };

  bool ShouldStop() const;
  void PackQueries();
  absl::Status RunKeyTile(std::int64_t first_key, std::int64_t count, bool first);
  absl::Status Multiply(std::int64_t n, std::int64_t k, bool transpose, const float* a,
                        const float* b, float* c);
  absl::Status Scores(std::int64_t first_key, std::int64_t count);
  void RescoreNonFiniteKeys(std::int64_t first_key, std::int64_t count);
  float SoftmaxRowStep(Row& row, std::int64_t first_key, std::int64_t count, float* scores);
  bool BlocksExclude(std::int64_t first_key, std::int64_t count) const;

  Columns ColumnsOf(const Row& row, std::int64_t first_key, std::int64_t count) const;
  bool HasBias() const;
  ScoreTransform TransformOf(const Row& row, std::int64_t first_key) const;
  void BuildBias(const Row& row, std::int64_t first_key, Columns columns, float* bias) const;
  bool Visible(const Row& row, std::int64_t key) const;

  void Normalize(Row& row);
  void StoreRows();
  absl::Status AddNonFiniteValues();
  absl::Status StoreDetails();
  void StoreDetailRow(const Row& row, std::int64_t first_key, std::int64_t count, float* scores);

  const TileContext& context_;
  const AttentionProblem& problem_;
  TileScratch& scratch_;
  const std::int64_t item_index_;
  const AttentionItem& item_;
  const std::int64_t kv_head_;
  const std::int64_t head_dim_;   // padded
  const std::int64_t value_dim_;  // padded
  const std::int64_t tile_rows_;  // rows of the products
  const bool plain_;              // nothing but a factor between product and softmax
  std::int64_t first_row_ = 0;
  std::int64_t num_rows_ = 0;
  KeyRange keys_;  // that any row may see, from a multiple of kKeyStep
  Row rows_[kMaxQueryTile];
};

}  // namespace attend

#endif  // ATTEND_CORE_ATTENTION_TILE_KERNEL_H_

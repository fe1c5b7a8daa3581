// What one attention request means, checked.
//
// AttentionArgs is what a caller asks for; AttentionProblem::Create checks all of it and settles
// every default, so that the reference and the kernels read one meaning and check nothing again.
//
// For each item b, query head h (reading KV head h / group_size) and query row i:
//   s_j = scale * (q_i . k_j);  s_j = softcap * tanh(s_j / softcap) if softcap > 0
//   s_j += -slope[h] * |i + offset - j|;  s_j += additive_mask[b, h, i, j]
//   weights = softmax of s over the keys that are not excluded, where a sink adds exp(sink[h]) to
//   the denominator;  output_i = sum_j weights_j * v_j;  LSE_i = ln(sum_j exp(s_j)), without sink.
// Key j is excluded if j >= the item's kv_len; or causal and j > i + offset; or outside
// [i + offset - window_left, i + offset + window_right]; or the boolean mask is false, the additive
// mask -inf, or the block switched off. A row that sees no key gives zeros and LSE -inf.
#ifndef ATTEND_CORE_BASE_ATTENTION_PROBLEM_H_
#define ATTEND_CORE_BASE_ATTENTION_PROBLEM_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"

namespace attend {

enum class Layout : std::uint8_t {
  kBatchHeadsLength,  // [batch, heads, length, dim]
  kBatchLengthHeads,  // [batch, length, heads, dim]
  kPacked,            // [tokens, heads, dim]
};

enum class Alignment : std::uint8_t {
  kFirst,    // query 0 stands at key 0
  kLast,     // the last query stands at the last key
  kOffsets,  // query_offsets says
};

enum class ScoreStage : std::uint8_t { kNone, kScaled, kCapped, kBiased };

struct BlockMask {
  std::int64_t query_block_size = 64;  // queries; a positive multiple of 64
  std::int64_t key_block_size = 64;    // keys; a positive multiple of 64
  TensorView blocks;  // BOOL, broadcasts to [batch, query_heads, query blocks, key blocks]
};

struct AttentionOptions {
  std::optional<float> scale;  // unset: 1 / sqrt(head_dim)
  float softcap = 0;           // logits; 0 = off
  bool causal = false;
  Alignment alignment = Alignment::kFirst;
  std::vector<std::int64_t> query_offsets;   // kOffsets: one, or one for each item
  std::optional<std::int64_t> window_left;   // tokens, own position not counted; unset = no limit
  std::optional<std::int64_t> window_right;  // likewise
  std::optional<TensorView> alibi_slopes;    // FLOAT32 [query_heads] or [batch, query_heads]
  std::optional<TensorView> sinks;           // FLOAT32 [query_heads]
  std::optional<BlockMask> block_mask;
};

struct OutputOptions {
  std::optional<DType> dtype;  // of the output; unset: query's
  bool lse = false;
  bool weights = false;
  ScoreStage scores = ScoreStage::kNone;
};

// Everything that a caller says about one request. The views' memory belongs to the caller.
struct AttentionArgs {
  AttentionOptions options;
  Layout layout = Layout::kBatchHeadsLength;
  std::vector<std::int64_t> query_lengths;  // tokens; kPacked: required; else empty = all padded
  std::vector<std::int64_t> kv_lengths;     // likewise
  OutputOptions output;
  std::optional<TensorView> boolean_mask;   // BOOL, true = may attend
  std::optional<TensorView> additive_mask;  // a float dtype, added to the scores
  TensorView query;
  TensorView key;
  TensorView value;
};

// What a request may hold at most; each bound is inclusive.
struct AttentionLimits {
  std::int64_t max_head_dim = 1024;
  std::int64_t max_value_dim = 1024;
  std::int64_t max_heads = 1024;
  std::int64_t max_batch = 65536;
  std::int64_t max_length = std::int64_t{1} << 22;          // tokens
  std::int64_t max_score_elements = std::int64_t{1} << 24;  // of weights or scores asked for
};

// A tensor over [batch, query_heads, rows, columns] of which some axes have stride 0.
// Strides are in elements.
struct BroadcastView {
  DType dtype = DType::kBool;
  const std::byte* data = nullptr;
  std::array<std::int64_t, 4> strides{};

  const std::byte* at(std::int64_t item, std::int64_t head, std::int64_t row,
                      std::int64_t column) const {
    const std::int64_t offset =
        item * strides[0] + head * strides[1] + row * strides[2] + column * strides[3];
    return data + offset * static_cast<std::int64_t>(SizeOf(dtype));
  }
};

struct BlockMaskView {
  std::int64_t query_block_size = 64;
  std::int64_t key_block_size = 64;
  BroadcastView blocks;  // BOOL
};

// One item: its own lengths and views, whatever the request's layout.
struct AttentionItem {
  std::int64_t query_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t offset = 0;       // position of query 0 on the key axis
  std::int64_t first_token = 0;  // kPacked: index of its first query token
  TensorView query;              // [query_heads, query_len, head_dim], strided
  TensorView key;                // [kv_heads, kv_len, head_dim], strided
  TensorView value;              // [kv_heads, kv_len, value_dim], strided
};

// Keys [begin, end), empty where begin >= end.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Thread-safety: immutable once made; safe to read from any thread. The memory behind the views of
// the arguments must outlive it.
class AttentionProblem {
 public:
  // Checks `args` in full.
  //
  // Errors: INVALID_ARGUMENT that names the field, the value and what was expected, for: a wrong
  // rank, dtype or size, sizes that disagree, are past `limits` or whose product overflows; lengths
  // or offsets that are too many, too few, out of range, or do not sum to the packed tokens; a
  // scale, softcap, slope, sink or mask element that is NaN or infinite where that has no meaning;
  // BOOL bytes other than 0 and 1; a negative softcap or window; masks that do not broadcast;
  // block sizes that are no multiple of 64, or too many blocks; scores asked for in excess.
  // Cost: reads masks, slopes and sinks once; never reads query, key or value.
  static absl::StatusOr<AttentionProblem> Create(const AttentionArgs& args,
                                                 const AttentionLimits& limits = {});

  std::int64_t batch() const { return static_cast<std::int64_t>(items_.size()); }
  std::int64_t query_heads() const { return query_heads_; }
  std::int64_t kv_heads() const { return kv_heads_; }
  std::int64_t group_size() const { return kv_heads_ == 0 ? 0 : query_heads_ / kv_heads_; }
  // Padded lengths; for kPacked those of the longest item.
  std::int64_t query_len() const { return query_len_; }
  std::int64_t kv_len() const { return kv_len_; }
  std::int64_t head_dim() const { return head_dim_; }
  std::int64_t value_dim() const { return value_dim_; }
  DType dtype() const { return dtype_; }
  Layout layout() const { return layout_; }
  std::span<const AttentionItem> items() const { return items_; }

  float scale() const { return scale_; }
  float softcap() const { return softcap_; }
  bool causal() const { return causal_; }
  std::optional<std::int64_t> window_left() const { return window_left_; }
  std::optional<std::int64_t> window_right() const { return window_right_; }
  bool has_alibi() const { return !alibi_slopes_.empty(); }
  // 0 where no slopes are given.
  float alibi_slope(std::int64_t item, std::int64_t head) const;
  bool has_sinks() const { return !sinks_.empty(); }
  // -inf where no sink is given.
  float sink(std::int64_t head) const;
  const std::optional<BroadcastView>& boolean_mask() const { return boolean_mask_; }
  const std::optional<BroadcastView>& additive_mask() const { return additive_mask_; }
  const std::optional<BlockMaskView>& block_mask() const { return block_mask_; }

  // The keys that length, causality and the window leave to query row i of an item.
  KeyRange VisibleKeys(const AttentionItem& item, std::int64_t row) const;

  DType output_dtype() const { return output_.dtype.value_or(dtype_); }
  bool wants_lse() const { return output_.lse; }
  bool wants_weights() const { return output_.weights; }
  ScoreStage score_stage() const { return output_.scores; }

  // In the request's layout: [batch, query_heads, query_len, value_dim] and so on.
  Dims output_shape() const;
  // [batch, query_heads, query_len]; kPacked: [tokens, query_heads].
  Dims lse_shape() const;
  // Of weights and scores: [batch, query_heads, query_len, kv_len].
  Dims score_shape() const;

  // Element offset of (item, head, row) in a dense tensor of output_shape(), and in one of
  // lse_shape().
  std::int64_t OutputOffset(std::int64_t item, std::int64_t head, std::int64_t row) const;
  std::int64_t LseOffset(std::int64_t item, std::int64_t head, std::int64_t row) const;

  // Query-key pairs not excluded by length, causality, window or blocks, times query_heads.
  std::int64_t dot_products() const { return dot_products_; }
  // 2 * (head_dim + value_dim) * dot_products. Saturates at the largest int64.
  std::int64_t flops() const;

 private:
  friend class AttentionProblemBuilder;
  AttentionProblem() = default;

  std::int64_t query_heads_ = 0;
  std::int64_t kv_heads_ = 0;
  std::int64_t query_len_ = 0;
  std::int64_t kv_len_ = 0;
  std::int64_t head_dim_ = 0;
  std::int64_t value_dim_ = 0;
  std::int64_t query_tokens_ = 0;  // kPacked
  std::int64_t dot_products_ = 0;
  DType dtype_ = DType::kFloat32;
  Layout layout_ = Layout::kBatchHeadsLength;
  OutputOptions output_;
  std::vector<AttentionItem> items_;

  float scale_ = 0;
  float softcap_ = 0;
  bool causal_ = false;
  std::optional<std::int64_t> window_left_;
  std::optional<std::int64_t> window_right_;
  std::vector<float> alibi_slopes_;  // [query_heads] or [batch, query_heads]
  std::vector<float> sinks_;         // [query_heads]
  std::optional<BroadcastView> boolean_mask_;
  std::optional<BroadcastView> additive_mask_;
  std::optional<BlockMaskView> block_mask_;
};

}  // namespace attend

#endif  // ATTEND_CORE_BASE_ATTENTION_PROBLEM_H_

#include "core/base/attention_problem.h"

#include <algorithm>
#include <limits>

namespace attend {

float AttentionProblem::alibi_slope(std::int64_t item, std::int64_t head) const {
  if (alibi_slopes_.empty()) return 0;
  const bool shared = static_cast<std::int64_t>(alibi_slopes_.size()) == query_heads_;
  return alibi_slopes_[(shared ? 0 : item * query_heads_) + head];
}

float AttentionProblem::sink(std::int64_t head) const {
  return sinks_.empty() ? -std::numeric_limits<float>::infinity() : sinks_[head];
}

KeyRange AttentionProblem::VisibleKeys(const AttentionItem& item, std::int64_t row) const {
  const std::int64_t position = row + item.offset;
  KeyRange keys{0, item.kv_len};
  if (causal_) keys.end = std::min(keys.end, position + 1);
  if (window_right_.has_value()) keys.end = std::min(keys.end, position + *window_right_ + 1);
  if (window_left_.has_value()) keys.begin = std::max(keys.begin, position - *window_left_);
  keys.begin = std::min(keys.begin, item.kv_len);
  keys.end = std::max(keys.end, keys.begin);
  return keys;
}

Dims AttentionProblem::output_shape() const {
  switch (layout_) {
    case Layout::kBatchHeadsLength:
      return {batch(), query_heads_, query_len_, value_dim_};
    case Layout::kBatchLengthHeads:
      return {batch(), query_len_, query_heads_, value_dim_};
    case Layout::kPacked:
      return {query_tokens_, query_heads_, value_dim_};
  }
  return {};
}

Dims AttentionProblem::lse_shape() const {
  if (layout_ == Layout::kPacked) return {query_tokens_, query_heads_};
  return {batch(), query_heads_, query_len_};
}

Dims AttentionProblem::score_shape() const { return {batch(), query_heads_, query_len_, kv_len_}; }

std::int64_t AttentionProblem::OutputOffset(std::int64_t item, std::int64_t head,
                                            std::int64_t row) const {
  switch (layout_) {
    case Layout::kBatchHeadsLength:
      return ((item * query_heads_ + head) * query_len_ + row) * value_dim_;
    case Layout::kBatchLengthHeads:
      return ((item * query_len_ + row) * query_heads_ + head) * value_dim_;
    case Layout::kPacked:
      return ((items_[item].first_token + row) * query_heads_ + head) * value_dim_;
  }
  return 0;
}

std::int64_t AttentionProblem::LseOffset(std::int64_t item, std::int64_t head,
                                         std::int64_t row) const {
  if (layout_ == Layout::kPacked) return (items_[item].first_token + row) * query_heads_ + head;
  return (item * query_heads_ + head) * query_len_ + row;
}

std::int64_t AttentionProblem::flops() const {
  std::int64_t flops = 0;
  const std::int64_t per_pair = 2 * (head_dim_ + value_dim_);
  return __builtin_mul_overflow(per_pair, dot_products_, &flops)
             ? std::numeric_limits<std::int64_t>::max()
             : flops;
}

}  // namespace attend

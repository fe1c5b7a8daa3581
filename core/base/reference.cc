#include "core/base/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attend {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Element(const TensorView& view, std::int64_t head, std::int64_t row, std::int64_t dim) {
  return LoadFloat(view.dtype,
                   view.at(head * view.strides[0] + row * view.strides[1] + dim * view.strides[2]));
}

bool Allowed(const AttentionProblem& problem, std::int64_t b, std::int64_t head, std::int64_t row,
             std::int64_t key) {
  const AttentionItem& item = problem.items()[b];
  const std::int64_t position = row + item.offset;
  if (key >= item.kv_len) return false;
  if (problem.causal() && key > position) return false;
  if (problem.window_left().has_value() && key < position - *problem.window_left()) return false;
  if (problem.window_right().has_value() && key > position + *problem.window_right()) return false;
  if (problem.boolean_mask().has_value() &&
      *problem.boolean_mask()->at(b, head, row, key) == std::byte{0}) {
    return false;
  }
  if (problem.block_mask().has_value()) {
    const BlockMaskView& mask = *problem.block_mask();
    return *mask.blocks.at(b, head, row / mask.query_block_size, key / mask.key_block_size) !=
           std::byte{0};
  }
  return true;
}

double AdditiveMask(const AttentionProblem& problem, std::int64_t b, std::int64_t head,
                    std::int64_t row, std::int64_t key) {
  if (!problem.additive_mask().has_value()) return 0;
  const BroadcastView& mask = *problem.additive_mask();
  return LoadFloat(mask.dtype, mask.at(b, head, row, key));
}

void FillScores(const AttentionProblem& problem, std::int64_t b, std::int64_t head,
                std::int64_t row, ReferenceRow& result) {
  const AttentionItem& item = problem.items()[b];
  const std::int64_t kv_head = head / problem.group_size();
  for (std::int64_t key = 0; key < item.kv_len; ++key) {
    double product = 0;
    for (std::int64_t d = 0; d < problem.head_dim(); ++d) {
      product += Element(item.query, head, row, d) * Element(item.key, kv_head, key, d);
    }
    const double scaled = product * problem.scale();
    const double softcap = problem.softcap();
    const double capped = softcap > 0 ? softcap * std::tanh(scaled / softcap) : scaled;
    const double distance = std::abs(static_cast<double>(row + item.offset - key));
    const double mask = AdditiveMask(problem, b, head, row, key);
    const bool visible = Allowed(problem, b, head, row, key) && mask != -kInfinity;
    const double bias = mask - static_cast<double>(problem.alibi_slope(b, head)) * distance;
    result.visible.push_back(visible);
    result.products.push_back(product);
    result.scaled.push_back(scaled);
    result.capped.push_back(capped);
    result.biased.push_back(visible ? capped + bias : -kInfinity);
  }
}

void FillWeights(const AttentionProblem& problem, std::int64_t head, ReferenceRow& result) {
  const std::size_t kv_len = result.biased.size();
  result.weights.assign(kv_len, 0.0);
  result.lse = -kInfinity;
  const bool sees_a_key =
      std::find(result.visible.begin(), result.visible.end(), true) != result.visible.end();
  if (!sees_a_key) return;
  double maximum = -kInfinity;
  for (const double score : result.biased) maximum = std::max(maximum, score);
  double sum = 0;
  for (std::size_t key = 0; key < kv_len; ++key) {
    if (!result.visible[key]) continue;
    result.weights[key] = std::exp(result.biased[key] - maximum);
    sum += result.weights[key];
  }
  result.lse = maximum + std::log(sum);
  const double denominator = sum + std::exp(problem.sink(head) - maximum);
  for (std::size_t key = 0; key < kv_len; ++key) {
    if (result.visible[key]) result.weights[key] /= denominator;
  }
}

void FillOutput(const AttentionProblem& problem, std::int64_t b, std::int64_t head,
                ReferenceRow& result) {
  const AttentionItem& item = problem.items()[b];
  const std::int64_t kv_head = head / problem.group_size();
  result.output.assign(problem.value_dim(), 0.0);
  result.magnitude.assign(problem.value_dim(), 0.0);
  if (std::isnan(result.lse)) {
    std::fill(result.output.begin(), result.output.end(), result.lse);
    return;
  }
  for (std::int64_t key = 0; key < item.kv_len; ++key) {
    if (!result.visible[key]) continue;
    for (std::int64_t d = 0; d < problem.value_dim(); ++d) {
      const double value = Element(item.value, kv_head, key, d);
      result.output[d] += std::isfinite(value) ? result.weights[key] * value : value;
      result.magnitude[d] += result.weights[key] * std::abs(value);
    }
  }
}

}  // namespace

ReferenceRow ReferenceAttentionRow(const AttentionProblem& problem, std::int64_t item,
                                   std::int64_t head, std::int64_t row) {
  ReferenceRow result;
  FillScores(problem, item, head, row, result);
  FillWeights(problem, head, result);
  FillOutput(problem, item, head, result);
  return result;
}

namespace {

std::int64_t Count(const Dims& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

void StoreScores(const AttentionProblem& problem, const ReferenceRow& row, std::int64_t begin,
                 ReferenceResult& result) {
  for (std::size_t key = 0; key < row.weights.size(); ++key) {
    if (problem.wants_weights()) result.weights[begin + key] = row.weights[key];
    if (problem.score_stage() == ScoreStage::kScaled) result.scores[begin + key] = row.scaled[key];
    if (problem.score_stage() == ScoreStage::kCapped) result.scores[begin + key] = row.capped[key];
    if (problem.score_stage() == ScoreStage::kBiased) result.scores[begin + key] = row.biased[key];
  }
}

}  // namespace

ReferenceResult ReferenceAttention(const AttentionProblem& problem) {
  ReferenceResult result;
  result.output.assign(Count(problem.output_shape()), 0.0);
  result.magnitude.assign(result.output.size(), 0.0);
  result.lse.assign(Count(problem.lse_shape()), -kInfinity);
  if (problem.wants_weights()) result.weights.assign(Count(problem.score_shape()), 0.0);
  if (problem.score_stage() != ScoreStage::kNone) {
    const bool biased = problem.score_stage() == ScoreStage::kBiased;
    result.scores.assign(Count(problem.score_shape()), biased ? -kInfinity : 0.0);
  }
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head = 0; head < problem.query_heads(); ++head) {
      for (std::int64_t i = 0; i < problem.items()[b].query_len; ++i) {
        const ReferenceRow row = ReferenceAttentionRow(problem, b, head, i);
        const std::int64_t at = problem.OutputOffset(b, head, i);
        std::copy(row.output.begin(), row.output.end(), result.output.begin() + at);
        std::copy(row.magnitude.begin(), row.magnitude.end(), result.magnitude.begin() + at);
        result.lse[problem.LseOffset(b, head, i)] = row.lse;
        const std::int64_t score_row = (b * problem.query_heads() + head) * problem.query_len() + i;
        StoreScores(problem, row, score_row * problem.kv_len(), result);
      }
    }
  }
  return result;
}

}  // namespace attend

#include "tests/unit/core/attention_accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <vector>

#include "core/base/reference.h"

namespace attend::testing {

namespace {

constexpr double kRoundoff = 0x1p-24;             // of float32
constexpr double kPromised = 2e-6;                // of design.md
constexpr double kInRange = 1e37;                 // products up to here stay finite in float32
constexpr double kLargestScore = 0x1.ffffffp127;  // more than this is infinite
constexpr double kTiny = 0x1p-126;                // less than this may become 0

// A weight of less than exp(-kNegligible) of another one's counts as lost altogether.
constexpr double kNegligible = 40;

// Above this, rounding may give infinity.
double LargestOf(DType dtype) { return dtype == DType::kFloat16 ? 65504 : kInRange; }

// Euclidean lengths of the rows of one head, or their largest finite magnitudes.
std::vector<double> NormsOf(const TensorView& view, std::int64_t head, bool largest) {
  std::vector<double> norms;
  for (std::int64_t row = 0; row < view.shape[1]; ++row) {
    double norm = 0;
    for (std::int64_t d = 0; d < view.shape[2]; ++d) {
      const double x = LoadFloat(view.dtype, view.at(head * view.strides[0] +
                                                     row * view.strides[1] + d * view.strides[2]));
      if (!largest) norm += x * x;
      if (largest && std::isfinite(x)) norm = std::max(norm, std::abs(x));
    }
    norms.push_back(largest ? norm : std::sqrt(norm));
  }
  return norms;
}

// The most that float32 can lose in one row's scores, in logits, for each key: of a score at each
// of its stages, and of the weight's logarithm.
struct RowLoss {
  std::vector<double> scaled;
  std::vector<double> capped;
  std::vector<double> biased;
  std::vector<double> weight;
  double maximum = -std::numeric_limits<double>::infinity();  // of the visible scores
  double worst = 0;      // of `weight` over the keys that matter
  bool in_range = true;  // whether no score overflows
};

class Comparison {
 public:
  Comparison(const AttentionProblem& problem, const Outputs& outputs, Accuracy accuracy)
      : problem_(problem),
        any_scores_(accuracy == Accuracy::kAnyScores),
        output_(outputs.output.ToFloats()),
        lse_(outputs.lse.ToFloats()),
        weights_(outputs.weights.ToFloats()),
        scores_(outputs.scores.ToFloats()) {}

  std::string Run() {
    for (std::int64_t b = 0; b < problem_.batch() && Same(); ++b) {
      for (std::int64_t head = 0; head < problem_.query_heads() && Same(); ++head) {
        CheckHead(b, head);
      }
    }
    return difference_;
  }

 private:
  bool Same() const { return difference_.empty(); }

  void CheckHead(std::int64_t b, std::int64_t head) {
    const AttentionItem& item = problem_.items()[b];
    b_ = b;
    head_ = head;
    const std::int64_t kv_head = head / problem_.group_size();
    query_norms_ = NormsOf(item.query, head, /*largest=*/false);
    key_norms_ = NormsOf(item.key, kv_head, /*largest=*/false);
    value_sizes_ = NormsOf(item.value, kv_head, /*largest=*/true);
    for (row_ = 0; row_ < item.query_len && Same(); ++row_) {
      CheckRow(ReferenceAttentionRow(problem_, b, head, row_));
    }
    const std::int64_t padded =
        problem_.layout() == Layout::kPacked ? item.query_len : problem_.query_len();
    for (; row_ < padded && Same(); ++row_) CheckPaddedRow();
    for (; row_ < problem_.query_len() && Same(); ++row_) CheckPaddedScores(0);
  }

  void CheckRow(const ReferenceRow& row) {
    const RowLoss loss = LossOf(row);
    CheckPaddedScores(static_cast<std::int64_t>(row.weights.size()));
    if (!loss.in_range) return;
    CheckOutput(row, loss);
    const double lse_bound = loss.worst + kPromised * (1 + std::abs(row.lse));
    Expect("lse", {}, lse_[problem_.LseOffset(b_, head_, row_)], row.lse, lse_bound);
    if (problem_.wants_weights()) CheckWeights(row, loss);
    CheckScores(row, loss);
  }

  // --- Bounds -----------------------------------------------------------------------------------

  RowLoss LossOf(const ReferenceRow& row) const {
    RowLoss loss;
    for (std::size_t key = 0; key < row.scaled.size(); ++key) {
      if (!row.visible[key]) continue;
      loss.maximum = std::max(loss.maximum, row.biased[key]);
    }
    for (std::size_t key = 0; key < row.scaled.size(); ++key) AddKey(row, key, loss);
    loss.worst = WorstLoss(row, loss);
    return loss;
  }

  void AddKey(const ReferenceRow& row, std::size_t key, RowLoss& loss) const {
    const double scaled = ScaledLoss(row, key);
    const double capped = CappedLoss(row, key, scaled);
    const double biased = BiasedLoss(row, key, capped);
    // Difference to the maximum, factor (itself rounded twice) and product.
    const double weight = biased + 4 * kRoundoff * std::abs(row.biased[key] - loss.maximum);
    loss.scaled.push_back(scaled + kRoundoff * std::abs(row.scaled[key]));
    loss.capped.push_back(capped);
    loss.biased.push_back(biased);
    loss.weight.push_back(std::isfinite(row.biased[key]) ? weight : 0);
    const bool overflows = Overflows(key) || std::abs(row.biased[key]) > kLargestScore;
    if (row.visible[key] && std::isfinite(row.biased[key]) && overflows) loss.in_range = false;
  }

  // Whether finite numbers may have an infinite product in float32.
  bool Overflows(std::size_t key) const {
    const double product = query_norms_[row_] * key_norms_[key];
    const double scale = std::abs(static_cast<double>(problem_.scale()));
    return std::isfinite(product) && product * std::max(1.0, scale) > kInRange;
  }

  // A dot product of d terms loses at most d roundings of |q| |k|; scaling it rounds twice more,
  // where a factor is made of the scale. What is not finite is so exactly.
  double ScaledLoss(const ReferenceRow& row, std::size_t key) const {
    if (!std::isfinite(row.scaled[key])) return 0;
    const double scale = std::abs(static_cast<double>(problem_.scale()));
    const auto dim = static_cast<double>(problem_.head_dim());
    return (dim + 2) * kRoundoff * scale * query_norms_[row_] * key_norms_[key] +
           (dim + 1) * kTiny * std::max(1.0, scale);
  }

  // Softcapping narrows what the score lost; the quotient loses one rounding, the hyperbolic
  // tangent four units in the last place, the product one rounding more.
  double CappedLoss(const ReferenceRow& row, std::size_t key, double scaled) const {
    const double cap = problem_.softcap();
    const double size = std::abs(row.scaled[key]);
    if (cap == 0) return scaled + kRoundoff * size;
    if (!std::isfinite(size)) return 9 * kRoundoff * cap;
    const double before = scaled + 2 * kRoundoff * size;
    const double after = cap * (std::tanh(size / cap) - std::tanh((size - before) / cap));
    return after + 9 * kRoundoff * std::abs(row.capped[key]);
  }

  // Of a bias each of distance, product and sum is rounded.
  double BiasedLoss(const ReferenceRow& row, std::size_t key, double capped) const {
    const double position = static_cast<double>(row_ + problem_.items()[b_].offset);
    const double alibi = std::abs(problem_.alibi_slope(b_, head_) * (position - key));
    const double bias = std::abs(row.biased[key] - row.capped[key]) + alibi;
    return capped + 4 * kRoundoff * alibi + 2 * kRoundoff * (std::abs(row.capped[key]) + bias);
  }

  // The loss of the keys that matter, whatever the others lose.
  double WorstLoss(const ReferenceRow& row, const RowLoss& loss) const {
    if (!any_scores_) return 0;
    double certain = -std::numeric_limits<double>::infinity();
    for (std::size_t key = 0; key < row.biased.size(); ++key) {
      if (row.visible[key]) certain = std::max(certain, row.biased[key] - loss.weight[key]);
    }
    double worst = 0;
    for (std::size_t key = 0; key < row.biased.size(); ++key) {
      const bool matters = row.biased[key] + loss.weight[key] >= certain - kNegligible;
      if (row.visible[key] && matters) worst = std::max(worst, loss.weight[key]);
    }
    // Sums of tiles are scaled for each next one, and to join parts once more: of P > 1 parts, of
    // 8 tiles each, at most 7 + P times, which is no more than there are tiles. A sink is compared
    // with a rounded maximum.
    worst += 3 * kRoundoff * std::ceil(static_cast<double>(row.biased.size()) / 512);
    if (problem_.has_sinks() && std::isfinite(loss.maximum)) {
      worst += 2 * kRoundoff * std::abs(loss.maximum);
    }
    return worst;
  }

  // Of a sum over n keys, in tiles. The promise has it that roundings cancel, as they do in values
  // of either sign; those of equal values add up.
  double SumLoss(double count) const {
    return any_scores_ ? kRoundoff * (std::min(count, 512.0) + count / 512) : 0;
  }

  // --- Checks -----------------------------------------------------------------------------------

  void CheckOutput(const ReferenceRow& row, const RowLoss& loss) {
    double largest = 0;
    for (std::size_t key = 0; key < row.visible.size(); ++key) {
      if (row.visible[key]) largest = std::max(largest, value_sizes_[key]);
    }
    const auto count = static_cast<double>(row.visible.size());
    if (count * largest > kInRange) return;
    // A weight and the sum of all may both be off; yet what is averaged stays in its range.
    const double in_all = 2.001 * largest;
    const double relative = std::expm1(2 * loss.worst) + SumLoss(count) + kPromised;
    const double lost = count * (any_scores_ ? std::exp(-kNegligible) : 0) * largest + 1e-38;
    for (std::int64_t d = 0; d < problem_.value_dim() && Same(); ++d) {
      const double want = row.output[d];
      const float got = output_[problem_.OutputOffset(b_, head_, row_) + d];
      const bool known = loss.worst < kNegligible;
      const double bound = (known ? std::min(relative * row.magnitude[d], in_all) : in_all) + lost;
      CheckRounded(d, got, want, bound);
    }
  }

  void CheckRounded(std::int64_t d, float got, double want, double bound) {
    const DType dtype = problem_.output_dtype();
    if (std::isfinite(want) && std::abs(want) + bound >= LargestOf(dtype)) return;
    bound += RoundingOf(dtype) * (std::abs(want) + bound) + StepOf(dtype);
    Expect("output", d, got, want, bound * 1.001);
  }

  void CheckWeights(const ReferenceRow& row, const RowLoss& loss) {
    for (std::size_t key = 0; key < row.weights.size() && Same(); ++key) {
      const double want = row.weights[key];
      double lost = 2 * kPromised;
      if (any_scores_ && std::isfinite(row.biased[key])) {
        lost += loss.weight[key] + loss.worst +
                2 * kRoundoff * (std::abs(row.biased[key]) + std::abs(loss.maximum));
      }
      if (lost > kNegligible) continue;  // nothing is known of it
      const double bound = want * std::expm1(lost) + (row.visible[key] ? 1e-37 : 0);
      Expect("weights", static_cast<std::int64_t>(key), weights_[ScoreOffset() + key], want, bound);
    }
  }

  void CheckScores(const ReferenceRow& row, const RowLoss& loss) {
    switch (problem_.score_stage()) {
      case ScoreStage::kNone:
        return;
      case ScoreStage::kScaled:
        return CheckStage(row.scaled, loss.scaled);
      case ScoreStage::kCapped:
        return CheckStage(row.capped, loss.capped);
      case ScoreStage::kBiased:
        return CheckStage(row.biased, loss.biased);
    }
  }

  void CheckStage(const std::vector<double>& want, const std::vector<double>& loss) {
    for (std::size_t key = 0; key < want.size() && Same(); ++key) {
      if (Overflows(key)) continue;  // excluded keys are told too
      const double bound = any_scores_ ? loss[key] + kTiny : kPromised * (1 + std::abs(want[key]));
      Expect("scores", static_cast<std::int64_t>(key), scores_[ScoreOffset() + key], want[key],
             bound);
    }
  }

  void CheckPaddedRow() {
    for (std::int64_t d = 0; d < problem_.value_dim() && Same(); ++d) {
      Expect("output", d, output_[problem_.OutputOffset(b_, head_, row_) + d], 0, 0);
    }
    Expect("lse", {}, lse_[problem_.LseOffset(b_, head_, row_)], -kInf, 0);
    CheckPaddedScores(0);
  }

  // Of weights and scores, what lies past an item's keys.
  void CheckPaddedScores(std::int64_t first) {
    const double unseen = problem_.score_stage() == ScoreStage::kBiased ? -kInf : 0;
    for (std::int64_t key = first; key < problem_.kv_len() && Same(); ++key) {
      if (problem_.wants_weights()) Expect("weights", key, weights_[ScoreOffset() + key], 0, 0);
      if (problem_.score_stage() == ScoreStage::kNone) continue;
      Expect("scores", key, scores_[ScoreOffset() + key], unseen, 0);
    }
  }

  std::int64_t ScoreOffset() const {
    const std::int64_t row = (b_ * problem_.query_heads() + head_) * problem_.query_len() + row_;
    return row * problem_.kv_len();
  }

  // Keeps the first difference.
  void Expect(const char* what, std::optional<std::int64_t> column, double got, double want,
              double bound) {
    if (!Same()) return;
    const bool close = !std::isfinite(want) || std::abs(got - want) <= bound;
    if (SameKind(got, want) && close) return;
    std::ostringstream text;
    text.precision(9);
    text << what << " of item " << b_ << " head " << head_ << " row " << row_;
    if (column.has_value()) text << " column " << *column;
    text << " is " << got << "; expected " << want << " within " << bound;
    difference_ = text.str();
  }

  const AttentionProblem& problem_;
  const bool any_scores_;
  const std::vector<float> output_;
  const std::vector<float> lse_;
  const std::vector<float> weights_;
  const std::vector<float> scores_;
  std::string difference_;

  // The row at hand.
  std::int64_t b_ = 0;
  std::int64_t head_ = 0;
  std::int64_t row_ = 0;
  std::vector<double> query_norms_;
  std::vector<double> key_norms_;
  std::vector<double> value_sizes_;
};

}  // namespace

std::string DifferenceFromReference(const AttentionProblem& problem, const Outputs& outputs,
                                    Accuracy accuracy) {
  return Comparison(problem, outputs, accuracy).Run();
}

}  // namespace attend::testing

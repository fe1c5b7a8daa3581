#include "client/cli/error_bound.h"

#include <cmath>
#include <limits>

namespace attend::cli {

namespace {

constexpr double kRoundoff = 0x1p-24;
constexpr double kPromised = 2e-6;  // of design, for unit-variance inputs
constexpr double kBFloat16Rounding = 0x1p-8;
constexpr double kDeviations = 4;  // times sqrt(3) standard ones: see the header
constexpr double kTile = 512;      // keys that are summed without joining parts
constexpr double kRoundingsPerTile = 3;

// A row of a [heads, length, dim] view.
void AppendRow(const TensorView& view, std::int64_t head, std::int64_t row, bool magnitudes,
               std::vector<float>* out) {
  for (std::int64_t d = 0; d < view.shape[2]; ++d) {
    const float value = LoadFloat(
        view.dtype, view.at(head * view.strides[0] + row * view.strides[1] + d * view.strides[2]));
    out->push_back(magnitudes ? std::abs(value) : value);
  }
}

// The same for numbers that differ in sign or by a power of two alone.
double Mantissa(double value) {
  int exponent = 0;
  return std::abs(std::frexp(value, &exponent));
}

}  // namespace

// Bounds |sum_j w_j (exp(e_j) - 1) d_j| / Z for several vectors d at once. Keys come in the order
// of their error_class.
class ErrorBound::Change {
 public:
  Change(std::size_t count, double log_denominator)
      : log_denominator_(log_denominator),
        worst_(count),
        squares_(count),
        class_sums_(count),
        remainder_(count),
        largest_(count) {}

  // The key's weight is exp(score - log_denominator). `distance(i)` is its |d_i|.
  template <typename Distance>
  void Add(const Key& key, const Distance& distance) {
    if (key.error_class != error_class_) EndClass();
    error_class_ = key.error_class;
    const double weight = std::exp(key.score - log_denominator_);
    // Not as a product with the weight, which may be 0 while the other factor is infinite.
    const double grown = std::exp(key.score - log_denominator_ + key.error());
    const double rest = std::max(0.0, grown - weight * (1 + key.error()));
    weighted_error_ += weight * key.error();
    for (std::size_t i = 0; i < worst_.size(); ++i) {
      const double size = distance(i);
      if (size == 0) continue;
      worst_[i] += weight * key.worst * size;
      class_sums_[i] += weight * key.likely * size;
      remainder_[i] += rest * size;
      largest_[i] = std::max(largest_[i], size);
    }
  }

  double Of(std::size_t i) {
    EndClass();
    if (largest_[i] == 0) return 0;
    const double first_order = std::min(worst_[i], std::sqrt(squares_[i]));
    return std::exp(weighted_error_) * (first_order + remainder_[i]);
  }
  double largest(std::size_t i) const { return largest_[i]; }

 private:
  void EndClass() {
    for (std::size_t i = 0; i < squares_.size(); ++i) {
      squares_[i] += class_sums_[i] * class_sums_[i];
      class_sums_[i] = 0;
    }
  }

  const double log_denominator_;
  double error_class_ = std::numeric_limits<double>::quiet_NaN();
  double weighted_error_ = 0;  // X
  std::vector<double> worst_;
  std::vector<double> squares_;
  std::vector<double> class_sums_;
  std::vector<double> remainder_;
  std::vector<double> largest_;
};

void ErrorBound::UseHead(std::int64_t item, std::int64_t kv_head) {
  if (item == item_ && kv_head == kv_head_) return;
  item_ = item;
  kv_head_ = kv_head;
  key_sizes_.clear();
  values_.clear();
  const AttentionItem& views = problem_.items()[static_cast<std::size_t>(item)];
  for (std::int64_t key = 0; key < views.kv_len; ++key) {
    AppendRow(views.key, kv_head, key, /*magnitudes=*/true, &key_sizes_);
    AppendRow(views.value, kv_head, key, /*magnitudes=*/false, &values_);
  }
}

// sum_k |q_k k_jk|.
double ErrorBound::DotSize(std::int64_t key) const {
  const float* sizes = key_sizes_.data() + key * problem_.head_dim();
  double sum = 0;
  for (std::size_t d = 0; d < query_sizes_.size(); ++d) {
    sum += static_cast<double>(query_sizes_[d]) * sizes[d];
  }
  return sum;
}

void ErrorBound::SetErrors(std::int64_t item, std::int64_t head, std::int64_t row, double maximum,
                           const ReferenceRow& reference, Key* key) const {
  const auto index = static_cast<std::size_t>(key->index);
  const auto dim = static_cast<double>(problem_.head_dim());
  const double dot = std::abs(static_cast<double>(problem_.scale())) * DotSize(key->index);
  const double capped = std::abs(reference.capped[index]);
  const std::int64_t offset = problem_.items()[static_cast<std::size_t>(item)].offset;
  const double distance = std::abs(static_cast<double>(row + offset - key->index));
  const double alibi = std::abs(problem_.alibi_slope(item, head)) * distance;
  double rest = 2 * std::abs(reference.scaled[index]) + 4 * (maximum - key->score);
  if (problem_.softcap() > 0) rest += 9 * capped;
  if (problem_.has_alibi() || problem_.additive_mask().has_value()) {
    const double bias = std::abs(reference.biased[index] - reference.capped[index]) + alibi;
    rest += 4 * alibi + 2 * (capped + bias);
  }
  key->worst = kRoundoff * (dim * dot + rest);
  key->likely = kDeviations * kRoundoff * (std::sqrt(dim) * dot + rest);
}

void ErrorBound::FindKeys(std::int64_t item, std::int64_t head, std::int64_t row,
                          const ReferenceRow& reference) {
  const AttentionItem& views = problem_.items()[static_cast<std::size_t>(item)];
  query_sizes_.clear();
  AppendRow(views.query, head, row, /*magnitudes=*/true, &query_sizes_);
  double maximum = -std::numeric_limits<double>::infinity();
  for (const double score : reference.biased) maximum = std::max(maximum, score);
  keys_.clear();
  for (std::size_t j = 0; j < reference.biased.size(); ++j) {
    // What is not finite is so exactly.
    if (!reference.visible[j] || !std::isfinite(reference.biased[j])) continue;
    Key key{.index = static_cast<std::int64_t>(j),
            .score = reference.biased[j],
            .weight = reference.weights[j],
            .error_class = Mantissa(reference.products[j])};
    SetErrors(item, head, row, maximum, reference, &key);
    keys_.push_back(key);
  }
}

std::vector<double> ErrorBound::FromScores(std::int64_t head, const ReferenceRow& reference) const {
  const std::size_t value_dim = reference.output.size();
  double denominator = reference.lse;
  if (problem_.has_sinks()) {
    const double sink = problem_.sink(head);
    const double larger = std::max(sink, reference.lse);
    denominator = larger + std::log(std::exp(sink - larger) + std::exp(reference.lse - larger));
  }
  Change change(value_dim, denominator);
  for (const Key& key : keys_) {
    const float* value = values_.data() + static_cast<std::size_t>(key.index) * value_dim;
    change.Add(key, [&](std::size_t i) { return std::abs(value[i] - reference.output[i]); });
  }
  std::vector<double> bounds;
  for (std::size_t i = 0; i < value_dim; ++i) {
    double farthest = change.largest(i);
    if (problem_.has_sinks()) farthest = std::max(farthest, std::abs(reference.output[i]));
    bounds.push_back(std::min(change.Of(i), farthest));
  }
  return bounds;
}

std::vector<double> ErrorBound::FromSums(std::size_t value_dim) const {
  std::vector<double> sums(value_dim);
  std::vector<double> squares(value_dim);
  for (const Key& key : keys_) {
    const float* value = values_.data() + static_cast<std::size_t>(key.index) * value_dim;
    for (std::size_t i = 0; i < value_dim; ++i) {
      sums[i] += key.weight * value[i];
      squares[i] += sums[i] * sums[i];
    }
  }
  for (double& square : squares) square = kDeviations * kRoundoff * std::sqrt(square);
  return squares;
}

double ErrorBound::OfLse(const ReferenceRow& reference) const {
  Change change(1, reference.lse);
  double largest = 0;
  for (const Key& key : keys_) {
    change.Add(key, [](std::size_t /*i*/) { return 1.0; });
    largest = std::max(largest, key.error());
  }
  return std::min(change.Of(0), largest) + kPromised * std::max(1.0, std::abs(reference.lse));
}

RowBounds ErrorBound::Of(std::int64_t item, std::int64_t head, std::int64_t row,
                         const ReferenceRow& reference) {
  UseHead(item, head / problem_.group_size());
  FindKeys(item, head, row, reference);
  RowBounds bounds;
  bounds.output = FromSums(reference.output.size());  // in the order of the keys
  std::sort(keys_.begin(), keys_.end(),
            [](const Key& a, const Key& b) { return a.error_class < b.error_class; });
  const std::vector<double> scores = FromScores(head, reference);
  const double joins = kRoundingsPerTile * std::floor(static_cast<double>(keys_.size()) / kTile);
  double relative = kPromised + kDeviations * kRoundoff * std::sqrt(joins);
  if (problem_.dtype() == DType::kBFloat16) relative += kBFloat16Rounding;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    bounds.output[i] += scores[i] + relative * reference.magnitude[i];
  }
  bounds.lse = OfLse(reference);  // of weights that are never rounded to bfloat16
  return bounds;
}

}  // namespace attend::cli

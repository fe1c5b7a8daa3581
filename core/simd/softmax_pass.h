// What happens to a tile of scores between its two matrix products.
#ifndef ATTEND_CORE_SIMD_SOFTMAX_PASS_H_
#define ATTEND_CORE_SIMD_SOFTMAX_PASS_H_

#include <cstdint>

namespace attend {

// Columns of a tile, row strides and buffers are multiples of this many floats, and rows begin at
// addresses that are multiples of 64 bytes.
inline constexpr std::int64_t kTileAlignment = 16;

// How one row of products becomes logits, where more than a factor is to be done.
struct ScoreTransform {
  float scale = 1;              // logits per product
  float softcap = 0;            // logits; 0 = off
  float alibi_slope = 0;        // logits per token; 0 = off
  float position = 0;           // of the row's query, in tokens from the tile's first key
  const float* bias = nullptr;  // [columns] logits to add, -inf excludes; null = none
};

// row[j] = softcap(scale * row[j]) - alibi_slope * |position - j| + bias[j] for j in [begin, end),
// where softcap(s) = softcap * tanh(s / softcap), and -inf where bias[j] is -inf, whatever row[j]
// is. Returns whether any j in [begin, end) is not excluded by its bias. begin and end need no
// alignment; what lies around them up to the alignment is undefined after.
bool TransformScores(const ScoreTransform& transform, std::int64_t begin, std::int64_t end,
                     float* row);

// The running state of a row's softmax over its tiles: begins with maximum -inf, sum 0.
struct SoftmaxRow {
  float maximum = 0;  // of the scores so far, in the units of the scores
  float sum = 0;      // of 2^(factor * (score - maximum))
};

// The columns [begin, end) of a tile that a row sees.
struct ColumnRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// One online-softmax step over the rows of a tile, with the exponential as a power of two: factor
// is log2(e) times what turns a score into a logit.
//
// For each row of the dense [rows, columns] matrix `scores`, its range and its state, with
// m = max(maximum, max_j score[j]) over j in [begin, end):
//   score[j] = 2^(factor * (score[j] - m)), and 0 for all other j in [0, columns);
//   sum = sum * c + sum_j score[j]; maximum = m; c = 2^(factor * (old maximum - m)), which is
//   its correction: what was accumulated must be scaled by it.
// factor must be positive. A -inf score has weight 0. A NaN or +inf score makes sum NaN. While
// no score is above -inf, weights are 0 and the state does not change, unless one is NaN.
// Accuracy: x = factor * (score[j] - m) takes one rounding, or two where the CPU has no fused
// multiply-add, 2^-23 * |x| of weight, relatively, at most, and the power of two 2^-23 more.
// Weights below 2^-126 are 0. Thread-safety: pure. Deterministic for (columns, begin, end, values)
// of a row on one target, whatever the other rows are.
void SoftmaxStep(float factor, std::int64_t rows, std::int64_t columns, const ColumnRange* ranges,
                 float* scores, SoftmaxRow* states, float* corrections);

// sums[row, :] = sums[row, :] * factors[row] + terms[row, :], for dense [rows, columns] matrices.
void AddToScaledRows(const float* factors, std::int64_t rows, std::int64_t columns,
                     const float* terms, float* sums);

// matrix[row, :] *= factors[row], for a dense [rows, columns] matrix. Rows of factor 1 are skipped.
void ScaleRows(const float* factors, std::int64_t rows, std::int64_t columns, float* matrix);

}  // namespace attend

#endif  // ATTEND_CORE_SIMD_SOFTMAX_PASS_H_

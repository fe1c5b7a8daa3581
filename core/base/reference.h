// The meaning of attention in float64: slow and plain. It decides every edge case, and every fast
// path is tested against it.
#ifndef ATTEND_CORE_BASE_REFERENCE_H_
#define ATTEND_CORE_BASE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "core/base/attention_problem.h"

namespace attend {

// Everything that a request may ask for, in float64, dense, in the shapes of AttentionProblem.
struct ReferenceResult {
  std::vector<double> output;   // problem.output_shape()
  std::vector<double> lse;      // problem.lse_shape(); always computed
  std::vector<double> weights;  // problem.score_shape(), if wants_weights()
  std::vector<double> scores;   // problem.score_shape(), if score_stage() is not kNone
  // sum_j weight_j * |v_j| for each element of output: the yardstick of its error bound.
  std::vector<double> magnitude;  // problem.output_shape()
};

// Computes the formula at the top of attention_problem.h, element by element.
//
// Edges: a visible value that is not finite adds itself, since a weight is positive however small
// it is, as the kernels do. A row with a NaN or +inf score is all NaN.
// Memory: the result and one row of scores. Cost: O(batch * query_heads * query_len * kv_len *
// dim). Thread-safety: pure.
ReferenceResult ReferenceAttention(const AttentionProblem& problem);

// One row of the same, step by step, for explaining. Vectors are [kv_len of the item].
struct ReferenceRow {
  std::vector<bool> visible;     // not excluded
  std::vector<double> products;  // q . k
  std::vector<double> scaled;
  std::vector<double> capped;
  std::vector<double> biased;     // -inf where excluded
  std::vector<double> weights;    // 0 where excluded
  std::vector<double> output;     // [value_dim]
  std::vector<double> magnitude;  // [value_dim]
  double lse = 0;
};
ReferenceRow ReferenceAttentionRow(const AttentionProblem& problem, std::int64_t item,
                                   std::int64_t head, std::int64_t row);

}  // namespace attend

#endif  // ATTEND_CORE_BASE_REFERENCE_H_

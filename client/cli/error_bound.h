// How far a float32 answer may be from the float64 reference.
//
// Let u = 2^-24, and for visible key j of a row: w_j its weight, v_j its value, o the row's output,
// s_j its score, m the largest score.
//
// 1. What a score loses. A dot product of d terms in float32, in whatever order, rounds d partial
//    sums, none of which is larger than A_j = |scale| * sum_k |q_k k_jk|: each is off by at most
//    u A_j, and together they are off by d u A_j in the worst case. Roundings go either way: taken
//    as independent and uniform in [-u A_j, u A_j], their sum has the deviation u A_j sqrt(d / 3),
//    and exceeds 4 u sqrt(d) A_j (seven deviations) with a probability below 2 exp(-24) = 1e-10.
//    A few roundings of known sizes follow: 2 of the scaled score, 9 of the softcapped one (a tanh
//    of four units in the last place), 4 of ALiBi, 2 of each summand where a bias is added, and 4
//    of m - s_j (the difference, and the exponential's argument); R_j is the sum of them all. So
//      x_j = u (d A_j + R_j) bounds the error of s_j, and y_j = 4 u (sqrt(d) A_j + R_j) in
//      practice; z_j is the smaller one.
//
// 2. What that does to the output. With errors e_j, |e_j| <= z_j, the output becomes
//      o' = sum_j w_j exp(e_j) v_j / Z, Z = sum_j w_j exp(e_j), hence
//      o' - o = sum_j w_j (exp(e_j) - 1) (v_j - o) / Z, because sum_j w_j (v_j - o) = 0
//    (a sink is one more key, with v = 0 and no error), and 1/Z <= exp(X), X = sum_j w_j z_j, since
//    exp is convex. The first-order part, sum_j w_j e_j (v_j - o), is at most
//    sum_j w_j x_j |v_j - o|. It is a sum of independent errors as well: the y_j of different keys
//    add up as the square root of their squares; those of keys whose products with the query are
//    equal (or equal but for a power of two, or the sign) are one error, and add up plainly. Of
//    these two the smaller counts. The remainder is taken in full:
//      |o' - o| <= exp(X) * (first order + sum_j w_j (exp(z_j) - 1 - z_j) |v_j - o|)
//    and in any case o' is a mean of the v_j (and 0, with a sink), so that
//    |o' - o| <= max_j |v_j - o|.
//
// 3. What the sum over the keys loses: each partial sum P_n = sum_{j <= n} w_j v_j is rounded, by
//    the same argument 4 u sqrt(sum_n P_n^2); for values of either sign partial sums stay small.
//
// 4. All else, that is exponentials, the sum of the weights, scalings and division, is within 2e-6
//    of sum_j w_j |v_j|: what design promises for unit-variance inputs, whose parts 1 to 3 are
//    small beside it. Each further 512 keys may be joined by 3 roundings more: 4 u sqrt(3 n / 512).
//    bfloat16 inputs add 2^-8, since their weights may be rounded to bfloat16.
//
// LSE: ln sum_j p_j exp(e_j), p_j being the weights without a sink, is bounded as in 2 with 1 in
// the place of |v_j - o|, and by max_j z_j; 4 adds 2e-6 * max(1, |LSE|).
#ifndef ATTEND_CLIENT_CLI_ERROR_BOUND_H_
#define ATTEND_CLIENT_CLI_ERROR_BOUND_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/attention_problem.h"
#include "core/base/reference.h"

namespace attend::cli {

// The bounds of one row.
struct RowBounds {
  std::vector<double> output;  // [value_dim], before the rounding to the output's dtype
  double lse = 0;
};

// Computes the bounds above, row by row. Thread-safety: for one thread.
class ErrorBound {
 public:
  // `problem` must outlive it.
  explicit ErrorBound(const AttentionProblem& problem) : problem_(problem) {}

  // `reference`: of this row. Where it is not finite the bounds are not either, or mean nothing.
  // Cost: kv_len * (head_dim + value_dim), less than the reference's own. Rows of one head should
  // follow each other: its keys and values are read once for them.
  RowBounds Of(std::int64_t item, std::int64_t head, std::int64_t row,
               const ReferenceRow& reference);

 private:
  // A visible key of the row at hand.
  struct Key {
    std::int64_t index = 0;
    double score = 0;  // biased
    double weight = 0;
    double worst = 0;        // x_j
    double likely = 0;       // y_j
    double error_class = 0;  // mantissa of |q . k|: equal where errors are

    double error() const { return std::min(worst, likely); }  // z_j
  };
  // Sums over keys, by component: what bounds sum_j w_j (exp(e_j) - 1) d_j.
  class Change;

  void UseHead(std::int64_t item, std::int64_t kv_head);
  void FindKeys(std::int64_t item, std::int64_t head, std::int64_t row,
                const ReferenceRow& reference);
  void SetErrors(std::int64_t item, std::int64_t head, std::int64_t row, double maximum,
                 const ReferenceRow& reference, Key* key) const;
  double DotSize(std::int64_t key) const;
  std::vector<double> FromScores(std::int64_t head, const ReferenceRow& reference) const;
  std::vector<double> FromSums(std::size_t value_dim) const;
  double OfLse(const ReferenceRow& reference) const;

  const AttentionProblem& problem_;
  std::int64_t item_ = -1;
  std::int64_t kv_head_ = -1;
  std::vector<float> query_sizes_;  // [head_dim], magnitudes, of the row at hand
  std::vector<float> key_sizes_;    // [kv_len, head_dim], magnitudes
  std::vector<float> values_;       // [kv_len, value_dim]
  std::vector<Key> keys_;           // of the row at hand
};

}  // namespace attend::cli

#endif  // ATTEND_CLIENT_CLI_ERROR_BOUND_H_

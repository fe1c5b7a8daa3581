// Small requests with known answers, computed both ways: by the reference and by the fast path.
#ifndef ATTEND_TESTS_UNIT_CORE_WORKED_EXAMPLES_H_
#define ATTEND_TESTS_UNIT_CORE_WORKED_EXAMPLES_H_

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {

using Numbers = std::vector<double>;

// A FLOAT32 tensor of given numbers.
inline Tensor Given(Dims shape, std::vector<float> values) {
  return Tensor::FromFloats(DType::kFloat32, std::move(shape), values);
}

// The same numbers in another dtype.
inline Tensor As(DType dtype, const Tensor& tensor) {
  return Tensor::FromFloats(dtype, tensor.shape, tensor.ToFloats());
}

// [1, 1, rows, columns]: one item, one head.
inline Tensor Matrix(std::int64_t rows, std::int64_t columns, std::vector<float> values) {
  return Given({1, 1, rows, columns}, std::move(values));
}

// One item, one head, dims 1: queries of 0 (all scores are 0), and the given values.
inline Request Uniform(std::int64_t query_len, std::vector<float> values) {
  Request request;
  const auto kv_len = static_cast<std::int64_t>(values.size());
  request.query = Matrix(query_len, 1, std::vector<float>(query_len));
  request.key = Matrix(kv_len, 1, std::vector<float>(kv_len, 1));
  request.value = Matrix(kv_len, 1, std::move(values));
  return request;
}

struct Answer {
  std::string path;
  Numbers output;
  Numbers lse;
  Numbers weights;
  Numbers scores;
};

inline Numbers Doubles(const Tensor& tensor) {
  const std::vector<float> values = tensor.ToFloats();
  return {values.begin(), values.end()};
}

// The request's answers, weights included, by the reference and by ComputeAttention.
inline std::vector<Answer> BothAnswers(Request request, ScoreStage stage = ScoreStage::kBiased) {
  request.args.output = {.dtype = DType::kFloat32, .lse = true, .weights = true, .scores = stage};
  const auto problem = AttentionProblem::Create(request.Args());
  EXPECT_TRUE(problem.ok()) << problem.status();
  if (!problem.ok()) return {};
  const ReferenceResult reference = ReferenceAttention(*problem);
  const auto fast = Compute(*problem);
  EXPECT_TRUE(fast.ok()) << fast.status();
  if (!fast.ok()) return {};
  return {{"reference", reference.output, reference.lse, reference.weights, reference.scores},
          {"fast path", Doubles(fast->output), Doubles(fast->lse), Doubles(fast->weights),
           Doubles(fast->scores)}};
}

// Each within `bound` of what is expected: half a unit of the last digit printed there, and what
// float32 adds to it.
inline void ExpectNear(const Numbers& actual, const Numbers& expected, double bound,
                       const Answer& answer) {
  ASSERT_EQ(actual.size(), expected.size()) << answer.path;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == -static_cast<double>(kInf)) {
      EXPECT_EQ(actual[i], expected[i]) << answer.path << " [" << i << "]";
    } else {
      EXPECT_NEAR(actual[i], expected[i], bound) << answer.path << " [" << i << "]";
    }
  }
}

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_WORKED_EXAMPLES_H_

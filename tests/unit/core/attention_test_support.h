// Requests for tests of attention: seeded data, owned here, and comparison with the reference.
#ifndef ATTEND_TESTS_UNIT_CORE_ATTENTION_TEST_SUPPORT_H_
#define ATTEND_TESTS_UNIT_CORE_ATTENTION_TEST_SUPPORT_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/attention/attention.h"
#include "core/base/attention_problem.h"
#include "core/base/buffer_pool.h"
#include "core/base/reference.h"
#include "core/base/tensor.h"
#include "core/executor/executor.h"

namespace attend::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Unit roundoff of a dtype (8 and 11 bits of precision): what rounding float32 to it costs.
inline double RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
    default:
      return 0;
  }
}

// The same of results near zero: half the smallest step of a dtype.
inline double StepOf(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-25 : 0; }

// Both NaN, both the same infinity, or both finite.
inline bool SameKind(double a, double b) {
  return std::isnan(a) == std::isnan(b) && std::isinf(a) == std::isinf(b) &&
         (!std::isinf(a) || a == b);
}

inline Tensor Normal(DType dtype, Dims shape, std::uint32_t seed, float sigma = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return Tensor::FromFloats(dtype, std::move(shape), values);
}

inline Tensor Bools(Dims shape, std::uint32_t seed, double share_of_true) {
  std::mt19937 random(seed);
  std::bernoulli_distribution coin(share_of_true);
  Tensor tensor = *Tensor::Zeros(DType::kBool, std::move(shape));
  for (std::byte& value : tensor.data) value = coin(random) ? std::byte{1} : std::byte{0};
  return tensor;
}

// Sets `count` elements from the first, in the order of its memory.
inline void Poison(Tensor& tensor, std::int64_t first, std::int64_t count, float with) {
  const auto size = static_cast<std::int64_t>(SizeOf(tensor.dtype));
  for (std::int64_t i = first; i < first + count; ++i) {
    StoreFloat(tensor.dtype, tensor.data.data() + i * size, with);
  }
}

// The same tensor with axes 1 and 2 exchanged.
inline Tensor Exchanged(const Tensor& tensor) {
  const std::vector<float> values = tensor.ToFloats();
  const auto [b, m, n, d] =
      std::tuple{tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]};
  std::vector<float> out(values.size());
  for (std::int64_t i = 0; i < b; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      for (std::int64_t k = 0; k < n; ++k) {
        for (std::int64_t l = 0; l < d; ++l) {
          out[((i * n + k) * m + j) * d + l] = values[((i * m + j) * n + k) * d + l];
        }
      }
    }
  }
  return Tensor::FromFloats(tensor.dtype, {b, n, m, d}, out);
}

// Arguments together with the tensors behind their views.
struct Request {
  Tensor query;
  Tensor key;
  Tensor value;
  std::optional<Tensor> boolean_mask;
  std::optional<Tensor> additive_mask;
  std::optional<Tensor> alibi_slopes;
  std::optional<Tensor> sinks;
  std::optional<Tensor> blocks;
  AttentionArgs args;  // everything but the views

  AttentionArgs Args() const {
    AttentionArgs result = args;
    result.query = query.view();
    result.key = key.view();
    result.value = value.view();
    if (boolean_mask) result.boolean_mask = boolean_mask->view();
    if (additive_mask) result.additive_mask = additive_mask->view();
    if (alibi_slopes) result.options.alibi_slopes = alibi_slopes->view();
    if (sinks) result.options.sinks = sinks->view();
    if (blocks) {
      if (!result.options.block_mask) result.options.block_mask.emplace();
      result.options.block_mask->blocks = blocks->view();
    }
    return result;
  }
};

// Sizes of a request in the layout [batch, heads, length, dim].
struct Sizes {
  std::int64_t batch = 1;
  std::int64_t query_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t query_len = 1;
  std::int64_t kv_len = 1;
  std::int64_t head_dim = 1;
  std::int64_t value_dim = 1;
  DType dtype = DType::kFloat32;

  friend std::ostream& operator<<(std::ostream& os, const Sizes& s) {
    return os << Name(s.dtype) << " batch " << s.batch << " heads " << s.query_heads << "/"
              << s.kv_heads << " lengths " << s.query_len << "x" << s.kv_len << " dims "
              << s.head_dim << "/" << s.value_dim;
  }
};

inline Request MakeRequest(const Sizes& s, std::uint32_t seed = 1) {
  Request request;
  request.query = Normal(s.dtype, {s.batch, s.query_heads, s.query_len, s.head_dim}, seed);
  request.key = Normal(s.dtype, {s.batch, s.kv_heads, s.kv_len, s.head_dim}, seed + 1);
  request.value = Normal(s.dtype, {s.batch, s.kv_heads, s.kv_len, s.value_dim}, seed + 2);
  return request;
}

// Item `b` of a dense tensor [batch, ...]; all of it where the batch shares it.
inline Tensor ItemOf(const Tensor& tensor, std::int64_t b) {
  Tensor item = tensor;
  if (tensor.shape[0] == 1) return item;
  const auto bytes = static_cast<std::int64_t>(tensor.data.size()) / tensor.shape[0];
  item.shape[0] = 1;
  item.data.assign(tensor.data.begin() + b * bytes, tensor.data.begin() + (b + 1) * bytes);
  return item;
}

// Item `b` of a request that is not packed and whose options do not tell items apart, alone.
inline Request Alone(const Request& request, std::int64_t b) {
  Request alone = request;
  alone.query = ItemOf(request.query, b);
  alone.key = ItemOf(request.key, b);
  alone.value = ItemOf(request.value, b);
  for (std::vector<std::int64_t>* lengths : {&alone.args.query_lengths, &alone.args.kv_lengths}) {
    if (!lengths->empty()) *lengths = {(*lengths)[b]};
  }
  return alone;
}

// Outputs with memory of their own, filled with a pattern that is no answer.
struct Outputs {
  Tensor output;
  Tensor lse;
  Tensor weights;
  Tensor scores;

  explicit Outputs(const AttentionProblem& problem) {
    output = *Tensor::Zeros(problem.output_dtype(), problem.output_shape());
    lse = *Tensor::Zeros(DType::kFloat32, problem.lse_shape());
    if (problem.wants_weights()) {
      weights = *Tensor::Zeros(DType::kFloat32, problem.score_shape());
    }
    if (problem.score_stage() != ScoreStage::kNone) {
      scores = *Tensor::Zeros(DType::kFloat32, problem.score_shape());
    }
    for (Tensor* tensor : {&output, &lse, &weights, &scores}) {
      std::fill(tensor->data.begin(), tensor->data.end(), std::byte{0x5a});
    }
  }

  AttentionOutputs pointers(const AttentionProblem& problem) {
    AttentionOutputs result{.output = output.data.data(), .lse = lse.data.data()};
    if (problem.wants_weights()) result.weights = weights.data.data();
    if (problem.score_stage() != ScoreStage::kNone) result.scores = scores.data.data();
    return result;
  }
};

// Threads and engine for one test program.
struct Machine {
  Executor executor;
  BufferPool memory;
  AttentionEngine engine;
  explicit Machine(int threads) : executor({.threads = threads}), engine(executor, memory) {}
};

inline Machine& SharedMachine() {
  static Machine& machine = *new Machine(2);
  return machine;
}

inline absl::StatusOr<Outputs> Compute(const AttentionProblem& problem,
                                       Machine& machine = SharedMachine()) {
  Outputs outputs(problem);
  absl::Status status =
      ComputeAttention(machine.engine, machine.executor, problem, outputs.pointers(problem));
  if (!status.ok()) return status;
  return outputs;
}

}  // namespace attend::testing

#endif  // ATTEND_TESTS_UNIT_CORE_ATTENTION_TEST_SUPPORT_H_

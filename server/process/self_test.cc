#include "server/process/self_test.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/attention_problem.h"
#include "core/base/reference.h"
#include "core/base/tensor.h"

namespace attend {
namespace {

struct DTypeCase {
  DType dtype;
  // Of the output, in units of sum_j weight_j * |v_j|: float32's rounding over the whole
  // computation, or half a unit in the last place of the output's dtype and some of that.
  double tolerance;
};
constexpr DTypeCase kCases[] = {
    {DType::kFloat32, 1e-5}, {DType::kBFloat16, 0x1p-8}, {DType::kFloat16, 0x1p-10}};

// Values in [-1, 1] without a pattern that a wrong stride would repeat.
Tensor MakeTensor(DType dtype, Dims shape, double seed) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i * (i % 13 + 1))));
  }
  return Tensor::FromFloats(dtype, std::move(shape), values);
}

absl::Status Compare(const Tensor& output, const ReferenceResult& expected, const DTypeCase& test) {
  const std::vector<float> values = output.ToFloats();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - expected.output[i]);
    // Written so that a NaN fails.
    if (difference <= test.tolerance * expected.magnitude[i]) continue;
    return absl::InternalError(absl::StrCat("self-test: ", Name(test.dtype), " output ", i, " is ",
                                            values[i], ", and ", expected.output[i],
                                            " was expected"));
  }
  return absl::OkStatus();
}

absl::Status RunCase(const DTypeCase& test, AttentionEngine& engine, Executor& executor) {
  // Two query heads a KV head, more keys than one tile, odd sizes everywhere.
  const Tensor query = MakeTensor(test.dtype, {1, 4, 67, 24}, 0.1);
  const Tensor key = MakeTensor(test.dtype, {1, 2, 601, 24}, 0.2);
  const Tensor value = MakeTensor(test.dtype, {1, 2, 601, 17}, 0.3);
  AttentionArgs args;
  args.options.causal = true;
  args.options.alignment = Alignment::kLast;
  args.query = query.view();
  args.key = key.view();
  args.value = value.view();
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(args);
  if (!problem.ok()) return problem.status();
  absl::StatusOr<Tensor> output = Tensor::Zeros(test.dtype, problem->output_shape());
  if (!output.ok()) return output.status();
  absl::Status status =
      ComputeAttention(engine, executor, *problem, {.output = output->data.data()});
  return status.ok() ? Compare(*output, ReferenceAttention(*problem), test) : status;
}

}  // namespace

absl::Status RunSelfTest(AttentionEngine& engine, Executor& executor) {
  for (const DTypeCase& test : kCases) {
    if (absl::Status status = RunCase(test, engine, executor); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace attend

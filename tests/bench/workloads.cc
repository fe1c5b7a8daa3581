#include "tests/bench/workloads.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "core/attention/attention.h"
#include "core/base/freed_memory.h"
#include "core/base/reference.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::bench {

namespace {

using Clock = std::chrono::steady_clock;

void Compute(testing::Machine& machine, const AttentionProblem& problem,
             testing::Outputs& outputs) {
  const absl::Status status =
      ComputeAttention(machine.engine, machine.executor, problem, outputs.pointers(problem));
  if (!status.ok()) {
    std::fprintf(stderr, "attend-bench: %s\n", status.ToString().c_str());
    std::exit(1);
  }
}

// FLOPs and seconds of a kind of request, cut from one tensor of numbers.
struct Tally {
  const Tensor& numbers;
  double flops = 0;
  double seconds = 0;

  void Run(testing::Machine& machine, std::int64_t length, std::int64_t dim) {
    AttentionArgs args;
    args.query = TensorView::Dense(DType::kFloat32, {1, 1, length, dim}, numbers.data.data());
    args.key = args.query;
    args.value = args.query;
    const AttentionProblem problem = *AttentionProblem::Create(args);
    testing::Outputs outputs(problem);
    const Clock::time_point begin = Clock::now();
    Compute(machine, problem, outputs);
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    flops += static_cast<double>(problem.flops());
  }
  double rate() const { return flops / seconds; }
};

// The most memory that this process has had, since the last reset, in MiB.
double PeakMiB() {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  double kib = 0;
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, "VmHWM:", 6) == 0) kib = std::atof(line + 6);
  }
  if (file != nullptr) std::fclose(file);
  return kib / 1024;
}

void ResetPeak() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "w");
  if (file == nullptr) return;
  std::fputs("5", file);  // proc(5): resets the peak resident set size
  std::fclose(file);
}

// The largest error of sampled rows, in units of 2e-6 * sum_j w_j |v_j|.
double SampledError(const AttentionProblem& problem, const testing::Outputs& outputs) {
  double worst = 0;
  const std::int64_t dim = problem.value_dim();
  for (std::int64_t row = 1; row < problem.query_len(); row = row * 3 + 1) {
    const ReferenceRow expected = ReferenceAttentionRow(problem, 0, 0, row);
    for (std::int64_t d = 0; d < dim; ++d) {
      const float output =
          LoadFloat(DType::kFloat32, outputs.output.data.data() + (row * dim + d) * sizeof(float));
      const double error = std::abs(output - expected.output[d]);
      worst = std::max(worst, error / (2e-6 * expected.magnitude[d]));
    }
  }
  return worst;
}

}  // namespace

std::vector<Figure> RaggedTraffic() {
  constexpr int kRequests = 2000;
  constexpr std::int64_t kMaxLength = 2048;
  constexpr std::int64_t kMaxDim = 160;
  const Tensor numbers = testing::Normal(DType::kFloat32, {kMaxLength, kMaxDim}, 1);
  testing::Machine machine(1);
  machine.engine.Warm();
  std::mt19937 random(1);
  std::uniform_int_distribution<std::int64_t> length(1, kMaxLength);
  Tally ragged{numbers};
  Tally fixed{numbers};
  for (int i = 0; i < kRequests; ++i) {
    ragged.Run(machine, length(random), 64);
    if (fixed.flops < ragged.flops) fixed.Run(machine, 1024, 64);
  }
  Tally others{numbers};
  for (int i = 0; i < 100; ++i) others.Run(machine, length(random), (i % 10 + 1) * kMaxDim / 10);
  return {{"ragged_over_fixed", ragged.rate() / fixed.rate(), 0.9, "FLOP for FLOP"},
          {"primitives_created", static_cast<double>(machine.engine.primitives_created()), 160,
           "in all", /*at_most=*/true}};
}

std::vector<Figure> LongContext() {
  constexpr std::int64_t kTokens = 131072;
  testing::Machine machine(2);
  testing::Request request = testing::MakeRequest(
      {.query_len = kTokens, .kv_len = kTokens, .head_dim = 64, .value_dim = 64});
  request.args.options.causal = true;
  const AttentionProblem problem = *AttentionProblem::Create(request.Args());
  testing::Outputs outputs(problem);
  GiveBackFreedMemory();  // what was freed must not hide what is taken
  ResetPeak();
  const double before = PeakMiB();
  Compute(machine, problem, outputs);
  const double gathered = 2.0 * kTokens * 64 * sizeof(float) / (1 << 20);
  return {{"long_context_extra_mib", PeakMiB() - before - gathered, 64, "MiB", /*at_most=*/true},
          {"long_context_error", SampledError(problem, outputs), 1, "of its bound",
           /*at_most=*/true}};
}

}  // namespace attend::bench

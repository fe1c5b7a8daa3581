// The kernel as a fraction of what this machine can do, both measured in one run.
//
// usage: attend-bench [--json FILE] [Google Benchmark's flags]
#include <benchmark/benchmark.h>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/attention/attention.h"
#include "core/executor/cpu_limits.h"
#include "tests/bench/machine_peak.h"
#include "tests/bench/report.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::bench {
namespace {

struct Case {
  std::string name;
  std::int64_t length;
  std::int64_t dim;
  DType dtype = DType::kFloat32;
  bool causal = false;
  int threads = 1;
  std::optional<double> target;  // of the peak of its threads
};

// Floors that the project sets itself; the rest is for the record.
std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {.name = "f32_d64_n128", .length = 128, .dim = 64, .target = 0.66},
      {.name = "f32_d64_n512", .length = 512, .dim = 64, .target = 0.70},
      {.name = "f32_d64_n2048", .length = 2048, .dim = 64, .target = 0.75},
      {.name = "f32_d128_n512", .length = 512, .dim = 128, .target = 0.73},
      {.name = "f32_d128_n2048", .length = 2048, .dim = 128, .target = 0.73},
      {.name = "causal_f32_d64_n512", .length = 512, .dim = 64, .causal = true, .target = 0.57},
      {.name = "causal_f32_d64_n2048", .length = 2048, .dim = 64, .causal = true, .target = 0.69},
      {.name = "bf16_d64_n512", .length = 512, .dim = 64, .dtype = DType::kBFloat16},
      {.name = "f16_d64_n512", .length = 512, .dim = 64, .dtype = DType::kFloat16},
  };
  if (UsableCpus() >= 2) {
    cases.push_back({.name = "two_threads_f32_d64_n2048", .length = 2048, .dim = 64, .threads = 2});
  }
  return cases;
}

constexpr const char* kPeak = "fma_peak";
constexpr int kHeads = 12;

void Peak(benchmark::State& state) {
  std::int64_t flops = 0;
  for (auto _ : state) flops += RunFmaLoop(1'000'000);
  state.counters["rate"] =
      benchmark::Counter(static_cast<double>(flops), benchmark::Counter::kIsRate);
}

void Attend(benchmark::State& state, const Case& c) {
  testing::Machine machine(c.threads);
  machine.engine.Warm();
  const testing::Request request = testing::MakeRequest({.batch = 1,
                                                         .query_heads = kHeads,
                                                         .kv_heads = kHeads,
                                                         .query_len = c.length,
                                                         .kv_len = c.length,
                                                         .head_dim = c.dim,
                                                         .value_dim = c.dim,
                                                         .dtype = c.dtype});
  AttentionArgs args = request.Args();
  args.options.causal = c.causal;
  const AttentionProblem problem = *AttentionProblem::Create(args);
  testing::Outputs outputs(problem);
  std::int64_t flops = 0;
  for (auto _ : state) {
    const absl::Status status =
        ComputeAttention(machine.engine, machine.executor, problem, outputs.pointers(problem));
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    flops += problem.flops();
  }
  state.counters["rate"] =
      benchmark::Counter(static_cast<double>(flops), benchmark::Counter::kIsRate);
}

void Register(const std::vector<Case>& cases) {
  std::vector<benchmark::internal::Benchmark*> all = {benchmark::RegisterBenchmark(kPeak, Peak)};
  for (const Case& c : cases) {
    all.push_back(benchmark::RegisterBenchmark(c.name.c_str(),
                                               [c](benchmark::State& state) { Attend(state, c); }));
  }
  // Many short repetitions, in random order across all benchmarks, so that a change of the
  // machine's speed meets all of them alike.
  for (benchmark::internal::Benchmark* b : all) b->UseRealTime()->MinTime(0.1)->Repetitions(9);
}

std::vector<Figure> Figures(const std::vector<Case>& cases, const BestRates& rates) {
  const double peak = rates.rate(kPeak);
  std::vector<Figure> figures = {{"fma_peak_gflops", peak / 1e9, std::nullopt, "GFLOP/s"}};
  for (const Case& c : cases) {
    const double rate = rates.rate(c.name);
    if (rate > 0) {
      figures.push_back({c.name, rate / (peak * c.threads), c.target, "of FMA peak"});
    }
  }
  const double one = rates.rate("f32_d64_n2048");
  const double two = rates.rate("two_threads_f32_d64_n2048");
  if (one > 0 && two > 0) figures.push_back({"scaling_2_threads", two / one, 1.9, "times one"});
  return figures;
}

int Main(int argc, char** argv) {
  std::string json;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  rest.push_back(interleave.data());
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  const std::vector<Case> cases = Cases();
  Register(cases);
  BestRates rates;
  benchmark::RunSpecifiedBenchmarks(&rates);
  const std::vector<Figure> figures = Figures(cases, rates);
  std::printf("CPU target %s; best of interleaved repetitions\n", CpuTarget().c_str());
  PrintFigures(figures);
  if (!json.empty() && !WriteFigures(json, figures)) {
    std::fprintf(stderr, "attend-bench: cannot write %s\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) { return attend::bench::Main(argc, argv); }

// The kernel as a fraction of what this machine can do, both measured in one run.
//
// usage: attend-bench [--json FILE] [--no-workloads] [Google Benchmark's flags]
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/attention/attention.h"
#include "core/base/aligned_buffer.h"
#include "core/executor/cpu_limits.h"
#include "core/executor/executor.h"
#include "tests/bench/machine_peak.h"
#include "tests/bench/report.h"
#include "tests/bench/workloads.h"
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
      {.name = "f32_d64_n512", .length = 512, .dim = 64, .target = 0.75},
      {.name = "f32_d64_n2048", .length = 2048, .dim = 64, .target = 0.75},
      {.name = "f32_d128_n128", .length = 128, .dim = 128, .target = 0.66},
      {.name = "f32_d128_n512", .length = 512, .dim = 128, .target = 0.73},
      {.name = "f32_d128_n2048", .length = 2048, .dim = 128, .target = 0.73},
      {.name = "causal_f32_d64_n512", .length = 512, .dim = 64, .causal = true, .target = 0.57},
      {.name = "causal_f32_d64_n2048", .length = 2048, .dim = 64, .causal = true, .target = 0.69},
      {.name = "causal_f32_d128_n512", .length = 512, .dim = 128, .causal = true},
      {.name = "causal_f32_d128_n2048", .length = 2048, .dim = 128, .causal = true},
  };
  for (const std::int64_t dim : {64, 128}) {
    for (const std::int64_t length : {128, 512, 2048}) {
      cases.push_back({.name = absl::StrCat("bf16_d", dim, "_n", length),
                       .length = length,
                       .dim = dim,
                       .dtype = DType::kBFloat16});
      if (dim == 64 && length > 128) cases.back().target = 0.70;
    }
  }
  cases.push_back({.name = "f16_d64_n512", .length = 512, .dim = 64, .dtype = DType::kFloat16});
  if (UsableCpus() >= 2) {
    cases.push_back({.name = "two_threads_f32_d64_n2048", .length = 2048, .dim = 64, .threads = 2});
  }
  return cases;
}

constexpr const char* kPeak = "fma_peak";
constexpr const char* kReadBandwidth = "read_bandwidth";
constexpr const char* kDecode = "decode";
constexpr const char* kFull = "full_n4096";
constexpr const char* kWindow = "window_255_0_n4096";
constexpr int kHeads = 12;
constexpr int kDecodeThreads = 2;

void SetRate(benchmark::State& state, double amount) {
  state.counters["rate"] = benchmark::Counter(amount, benchmark::Counter::kIsRate);
}

void Peak(benchmark::State& state) {
  std::int64_t flops = 0;
  for (auto _ : state) flops += RunFmaLoop(1'000'000);
  SetRate(state, static_cast<double>(flops));
}

// Reads memory in pieces, on all threads of an executor.
class ReadJob : public TileJob {
 public:
  explicit ReadJob(const AlignedBuffer& buffer) : buffer_(buffer) {}
  int num_stages() const override { return 1; }
  std::int64_t num_units(int) const override { return kPieces; }
  std::int64_t unit_cost(int) const override { return 4 * kPiece; }
  void RunUnit(int, std::int64_t unit, Worker&) override {
    ReadMemory(buffer_.data() + unit * kPiece, kPiece);
  }
  void Finish() override {}

  static constexpr std::int64_t kPieces = 128;
  static constexpr std::int64_t kPiece = 1 << 19;  // floats

 private:
  const AlignedBuffer& buffer_;
};

void ReadBandwidth(benchmark::State& state) {
  Executor executor({.threads = kDecodeThreads});
  AlignedBuffer buffer(ReadJob::kPieces * ReadJob::kPiece);
  std::fill_n(buffer.data(), ReadJob::kPieces * ReadJob::kPiece, 1.0f);
  double bytes = 0;
  for (auto _ : state) {
    ReadJob job(buffer);
    TileJob* const jobs[] = {&job};
    executor.Run(jobs);
    bytes += static_cast<double>(ReadJob::kPieces * ReadJob::kPiece * sizeof(float));
  }
  SetRate(state, bytes);
}

// Computes a request again and again; the rate is that of `work` for each.
void ComputeAgain(benchmark::State& state, int threads, const AttentionArgs& args,
                  const std::function<double(const AttentionProblem&)>& work) {
  testing::Machine machine(threads);
  machine.engine.Warm();
  const AttentionProblem problem = *AttentionProblem::Create(args);
  testing::Outputs outputs(problem);
  double sum = 0;
  for (auto _ : state) {
    const absl::Status status =
        ComputeAttention(machine.engine, machine.executor, problem, outputs.pointers(problem));
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    sum += work(problem);
  }
  SetRate(state, sum);
}

void Attend(benchmark::State& state, const Case& c) {
  const testing::Request request = testing::MakeRequest({.query_heads = kHeads,
                                                         .kv_heads = kHeads,
                                                         .query_len = c.length,
                                                         .kv_len = c.length,
                                                         .head_dim = c.dim,
                                                         .value_dim = c.dim,
                                                         .dtype = c.dtype});
  AttentionArgs args = request.Args();
  args.options.causal = c.causal;
  ComputeAgain(state, c.threads, args, [](const AttentionProblem& problem) {
    return static_cast<double>(problem.flops());
  });
}

// One query of 32 heads on 8 KV heads for each of 16 sequences of 4096 keys; the rate is that of
// the bytes of keys and values.
void Decode(benchmark::State& state) {
  const testing::Sizes sizes{.batch = 16,
                             .query_heads = 32,
                             .kv_heads = 8,
                             .query_len = 1,
                             .kv_len = 4096,
                             .head_dim = 128,
                             .value_dim = 128,
                             .dtype = DType::kBFloat16};
  const testing::Request request = testing::MakeRequest(sizes);
  const auto bytes = static_cast<double>(request.key.data.size() + request.value.data.size());
  ComputeAgain(state, kDecodeThreads, request.Args(),
               [bytes](const AttentionProblem&) { return bytes; });
}

// The rate is that of requests.
void Window(benchmark::State& state, bool windowed) {
  const testing::Request request = testing::MakeRequest({.query_heads = 2,
                                                         .kv_heads = 2,
                                                         .query_len = 4096,
                                                         .kv_len = 4096,
                                                         .head_dim = 64,
                                                         .value_dim = 64});
  AttentionArgs args = request.Args();
  if (windowed) {
    args.options.window_left = 255;
    args.options.window_right = 0;
  }
  ComputeAgain(state, 1, args, [](const AttentionProblem&) { return 1.0; });
}

void Register(const std::vector<Case>& cases) {
  std::vector<benchmark::internal::Benchmark*> all = {
      benchmark::RegisterBenchmark(kPeak, Peak),
      benchmark::RegisterBenchmark(kReadBandwidth, ReadBandwidth),
      benchmark::RegisterBenchmark(kDecode, Decode),
      benchmark::RegisterBenchmark(kFull, [](benchmark::State& state) { Window(state, false); }),
      benchmark::RegisterBenchmark(kWindow, [](benchmark::State& state) { Window(state, true); }),
  };
  for (const Case& c : cases) {
    all.push_back(benchmark::RegisterBenchmark(c.name.c_str(),
                                               [c](benchmark::State& state) { Attend(state, c); }));
  }
  // Many short repetitions, in random order across all benchmarks, so that a change of the
  // machine's speed meets all of them alike.
  for (benchmark::internal::Benchmark* b : all) b->UseRealTime()->MinTime(0.1)->Repetitions(9);
}

// Appends value / base as a figure, if both were measured.
void AddRatio(std::vector<Figure>& figures, const std::string& name, double value, double base,
              std::optional<double> target, const std::string& unit, bool at_most = false) {
  if (value > 0 && base > 0) figures.push_back({name, value / base, target, unit, at_most});
}

std::vector<Figure> Figures(const std::vector<Case>& cases, const BestRates& rates) {
  const double peak = rates.rate(kPeak);
  const double bandwidth = rates.rate(kReadBandwidth);
  std::vector<Figure> figures = {
      {"fma_peak_gflops", peak / 1e9, std::nullopt, "GFLOP/s, one thread"},
      {"read_bandwidth_gb_per_s", bandwidth / 1e9, std::nullopt, "GB/s, two threads"}};
  for (const Case& c : cases) {
    AddRatio(figures, c.name, rates.rate(c.name), peak * c.threads, c.target, "of FMA peak");
  }
  AddRatio(figures, "scaling_2_threads", rates.rate("two_threads_f32_d64_n2048"),
           rates.rate("f32_d64_n2048"), 1.9, "times one");
  AddRatio(figures, "window_255_0_n4096_over_full", rates.rate(kFull), rates.rate(kWindow), 0.10,
           "of full's time", /*at_most=*/true);
  AddRatio(figures, "decode_of_read_bandwidth", rates.rate(kDecode), bandwidth, 0.85,
           "of read bandwidth");
  return figures;
}

int Main(int argc, char** argv) {
  std::string json;
  bool workloads = true;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--no-workloads") == 0) {
      workloads = false;
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
  std::vector<Figure> figures = Figures(cases, rates);
  if (workloads) {
    for (const auto& workload : {RaggedTraffic, LongContext}) {
      for (Figure& figure : workload()) figures.push_back(std::move(figure));
    }
  }
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

// The fast path: exact attention in tiles with an online softmax.
//
// How it computes is told once, in core/attention/README.md.
#ifndef ATTEND_CORE_ATTENTION_ATTENTION_H_
#define ATTEND_CORE_ATTENTION_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/attention_problem.h"
#include "core/base/buffer_pool.h"
#include "core/executor/executor.h"

namespace attend {

// What all attention jobs of a process share: the GEMM primitives, created once for each of a
// bounded set of shapes, scratch memory for each slot of one executor, and where the jobs' working
// memory comes from.
// Thread-safety: safe from any thread.
class AttentionEngine {
 public:
  // For jobs of this executor alone. `memory`, of which each job takes WorkingBytes and gives them
  // back when it is destroyed, must outlive the engine. From the system, that memory would cost a
  // job of 128 tokens half as much again as its computing does: each page is a fault.
  AttentionEngine(const Executor& executor, BufferPool& memory);
  ~AttentionEngine();
  AttentionEngine(const AttentionEngine&) = delete;
  AttentionEngine& operator=(const AttentionEngine&) = delete;

  // GEMM primitives created since the start; bounded whatever shapes arrive.
  std::int64_t primitives_created() const;

  // Creates the primitives of the common head sizes now, so that no request waits for them.
  void Warm();

  class Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Instruction set that the SIMD passes run on, such as "AVX2" or "AVX3_ZEN4".
std::string CpuTarget();

// Where the results go: dense, in the problem's shapes, at any alignment. Null: not wanted.
struct AttentionOutputs {
  std::byte* output = nullptr;   // output_shape(), output_dtype()
  std::byte* lse = nullptr;      // lse_shape(), FLOAT32
  std::byte* weights = nullptr;  // score_shape(), FLOAT32
  std::byte* scores = nullptr;   // score_shape(), FLOAT32
};

struct AttentionJobHooks {
  // Asked before each tile, from any worker; true = compute nothing more. May be empty.
  std::function<bool()> should_stop;
  // Called once at the end: OK, or with the outputs unspecified CANCELLED (should_stop was true),
  // RESOURCE_EXHAUSTED (no memory for scratch) or INTERNAL. May destroy the job. May be empty.
  std::function<void(absl::Status)> on_finished;
};

// Makes a job of one problem. `problem`, the memory behind its views, `engine` and the outputs must
// outlive the job.
//
// Shapes: as AttentionProblem. DType and accumulation: products are taken in float32 (bfloat16 and
// float16 are converted as they are gathered or read); scores, softmax and sums are float32; one
// rounding to the output's dtype at the end.
// Accuracy, per component, before the rounding to the output's dtype:
//   |o - o*| <= e * sum_j w_j |v_j|, with e = 2e-6 for unit-variance inputs.
// For others, in the worst case, e = 2e-6 + 2^-24 (n + 2 (d + 3) max_j s_j + 32 max_j b_j):
// n = min(kv_len, 512) additions lose as much, unless values are of either sign; s_j, that is
// |scale| sum_k |q_k| |k_k|, bounds what a dot product of d terms can lose, and b_j, the sizes of
// softcapped score, ALiBi and mask together, what these options can; both a score and the sum of
// the weights lose it. core/attention/README.md derives it. Range: a row's weighted values are
// summed before they are divided by the sum of its weights, so kv_len * max_j |v_j| must stay below
// 2^128. So must scores: a row of which all visible scores overflow to -inf is NaN.
//
// Deterministic: bit-identical on one CPU target and build, whatever the thread count, the batch or
// the neighbours.
//
// Memory: WorkingBytes(problem), and per slot a fixed scratch of a few MiB.
//
// Errors: RESOURCE_EXHAUSTED if memory cannot be had.
absl::StatusOr<std::unique_ptr<TileJob>> MakeAttentionJob(AttentionEngine& engine,
                                                          const AttentionProblem& problem,
                                                          const AttentionOutputs& outputs,
                                                          AttentionJobHooks hooks);

// Bytes that a job and its problem hold while they live: gathered keys and values, the results of
// parts, and what is kept for each item.
std::int64_t WorkingBytes(const AttentionProblem& problem);

// What computing a problem costs in all, on one core, in FLOPs or what takes as long: products, the
// memory that is read and written, and something for each tile.
double ComputeCost(const AttentionProblem& problem);

// Runs one problem and waits. Errors as MakeAttentionJob.
absl::Status ComputeAttention(AttentionEngine& engine, Executor& executor,
                              const AttentionProblem& problem, const AttentionOutputs& outputs);

}  // namespace attend

#endif  // ATTEND_CORE_ATTENTION_ATTENTION_H_

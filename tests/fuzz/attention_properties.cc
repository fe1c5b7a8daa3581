#include "tests/fuzz/attention_properties.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/unit/core/attention_accuracy.h"

namespace attend::testing {

namespace {

Machine& OneThread() {
  static Machine& machine = *new Machine(1);
  return machine;
}

// --- Bits
// -----------------------------------------------------------------------------------------

// The first element in which two tensors of one shape differ, or nothing.
std::string DifferentBits(const char* name, const Tensor& want, const Tensor& got) {
  if (want.data == got.data) return "";
  const std::vector<float> wanted = want.ToFloats();
  const std::vector<float> gotten = got.ToFloats();
  const auto size = static_cast<std::int64_t>(SizeOf(want.dtype));
  std::int64_t i = 0;
  while (std::memcmp(want.data.data() + i * size, got.data.data() + i * size, size) == 0) ++i;
  std::ostringstream text;
  text.precision(9);
  text << name << "[" << i << "] is " << gotten[i] << " instead of " << wanted[i];
  return text.str();
}

std::string DifferentBits(const Outputs& want, const Outputs& got) {
  for (const auto& [name, tensor] : {std::pair{"output", &Outputs::output},
                                     {"lse", &Outputs::lse},
                                     {"weights", &Outputs::weights},
                                     {"scores", &Outputs::scores}}) {
    std::string difference = DifferentBits(name, want.*tensor, got.*tensor);
    if (!difference.empty()) return difference;
  }
  return "";
}

std::string Because(const std::string& circumstance, const std::string& difference) {
  return difference.empty() ? "" : circumstance + ": " + difference;
}

// --- Memory that is not aligned
// -------------------------------------------------------------------

// A tensor's elements at an odd address, with nothing of the buffer's after the last one.
class Misaligned {
 public:
  explicit Misaligned(const Tensor& tensor) : bytes_(tensor.data.size() + 1) {
    std::copy(tensor.data.begin(), tensor.data.end(), bytes_.begin() + 1);
  }

  std::byte* data() { return bytes_.data() + 1; }
  void CopyTo(Tensor& tensor) const {
    std::copy(bytes_.begin() + 1, bytes_.end(), tensor.data.begin());
  }

 private:
  std::vector<std::byte> bytes_;
};

std::string FaultOfMisaligned(const Request& request, const Outputs& want) {
  AttentionArgs args = request.Args();
  Misaligned query(request.query);
  Misaligned key(request.key);
  Misaligned value(request.value);
  args.query.data = query.data();
  args.key.data = key.data();
  args.value.data = value.data();
  const auto problem = AttentionProblem::Create(args);
  if (!problem.ok()) return problem.status().ToString();
  Outputs outputs = want;
  Misaligned output(want.output);
  Misaligned lse(want.lse);
  Misaligned weights(want.weights);
  Misaligned scores(want.scores);
  AttentionOutputs pointers = outputs.pointers(*problem);
  pointers.output = output.data();
  pointers.lse = problem->wants_lse() ? lse.data() : nullptr;
  if (pointers.weights != nullptr) pointers.weights = weights.data();
  if (pointers.scores != nullptr) pointers.scores = scores.data();
  Machine& machine = SharedMachine();
  const absl::Status status =
      ComputeAttention(machine.engine, machine.executor, *problem, pointers);
  if (!status.ok()) return status.ToString();
  output.CopyTo(outputs.output);
  lse.CopyTo(outputs.lse);
  weights.CopyTo(outputs.weights);
  scores.CopyTo(outputs.scores);
  return DifferentBits(want, outputs);
}

// --- In one batch
// ---------------------------------------------------------------------------------

std::string FaultOfBatch(std::initializer_list<const AttentionProblem*> problems,
                         std::initializer_list<const Outputs*> want) {
  Machine& machine = SharedMachine();
  std::vector<Outputs> outputs;
  std::vector<absl::Status> statuses(problems.size(), absl::UnknownError("never finished"));
  std::vector<std::unique_ptr<TileJob>> jobs;
  std::vector<TileJob*> pointers;
  for (const AttentionProblem* problem : problems) outputs.emplace_back(*problem);
  for (const AttentionProblem* problem : problems) {
    const std::size_t i = jobs.size();
    AttentionJobHooks hooks;
    hooks.on_finished = [&statuses, i](absl::Status status) { statuses[i] = std::move(status); };
    auto job =
        MakeAttentionJob(machine.engine, *problem, outputs[i].pointers(*problem), std::move(hooks));
    if (!job.ok()) return job.status().ToString();
    jobs.push_back(*std::move(job));
    pointers.push_back(jobs.back().get());
  }
  machine.executor.Run(pointers);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!statuses[i].ok()) return statuses[i].ToString();
    std::string difference = DifferentBits(*want.begin()[i], outputs[i]);
    if (!difference.empty()) return difference;
  }
  return "";
}

// --- What nobody sees
// -----------------------------------------------------------------------------

// design.md's rule 4, of which the problem has settled length, causality and windows.
bool Sees(const AttentionProblem& problem, std::int64_t b, std::int64_t head, std::int64_t row,
          std::int64_t key) {
  const KeyRange range = problem.VisibleKeys(problem.items()[b], row);
  if (key < range.begin || key >= range.end) return false;
  if (const auto& mask = problem.boolean_mask()) {
    if (*mask->at(b, head, row, key) == std::byte{0}) return false;
  }
  if (const auto& mask = problem.additive_mask()) {
    if (LoadFloat(mask->dtype, mask->at(b, head, row, key)) == -kInf) return false;
  }
  const auto& mask = problem.block_mask();
  return !mask || *mask->blocks.at(b, head, row / mask->query_block_size,
                                   key / mask->key_block_size) != std::byte{0};
}

bool AnyQuerySees(const AttentionProblem& problem, std::int64_t b, std::int64_t kv_head,
                  std::int64_t key) {
  for (std::int64_t g = 0; g < problem.group_size(); ++g) {
    for (std::int64_t row = 0; row < problem.items()[b].query_len; ++row) {
      if (Sees(problem, b, kv_head * problem.group_size() + g, row, key)) return true;
    }
  }
  return false;
}

// Calls `found` with each item, KV head and key that a query sees.
void ForEachSeen(
    const AttentionProblem& problem,
    const std::function<void(const AttentionItem&, std::int64_t, std::int64_t)>& found) {
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t kv_head = 0; kv_head < problem.kv_heads(); ++kv_head) {
      for (std::int64_t key = 0; key < problem.items()[b].kv_len; ++key) {
        if (AnyQuerySees(problem, b, kv_head, key)) found(problem.items()[b], kv_head, key);
      }
    }
  }
}

// Of the rows of a dense tensor, counted over all its axes but the last, those that are seen.
class SeenRows {
 public:
  explicit SeenRows(const Tensor& tensor)
      : tensor_(tensor), seen_(tensor.num_elements() / tensor.shape.back()) {}

  void Add(const TensorView& view, std::int64_t kv_head, std::int64_t key) {
    const std::byte* address = view.at(kv_head * view.strides[0] + key * view.strides[1]);
    const auto row_bytes = static_cast<std::int64_t>(SizeOf(tensor_.dtype)) * tensor_.shape.back();
    seen_[(address - tensor_.data.data()) / row_bytes] = true;
  }

  // The tensor with all other rows exchanged for what should never be read.
  Tensor PoisonOthers() const {
    Tensor poisoned = tensor_;
    const auto size = static_cast<std::int64_t>(SizeOf(poisoned.dtype));
    const float poison[] = {kNaN, kInf, -kInf, std::numeric_limits<float>::max() / 2, -0.0f};
    for (std::int64_t i = 0; i < poisoned.num_elements(); ++i) {
      if (seen_[i / poisoned.shape.back()]) continue;
      StoreFloat(poisoned.dtype, poisoned.data.data() + i * size, poison[i % std::size(poison)]);
    }
    return poisoned;
  }

 private:
  const Tensor& tensor_;
  std::vector<bool> seen_;
};

std::string FaultOfUnseen(const Request& request, const AttentionProblem& problem,
                          const Outputs& want) {
  SeenRows keys(request.key);
  SeenRows values(request.value);
  ForEachSeen(problem, [&](const AttentionItem& item, std::int64_t kv_head, std::int64_t key) {
    keys.Add(item.key, kv_head, key);
    values.Add(item.value, kv_head, key);
  });
  Request poisoned = request;
  poisoned.key = keys.PoisonOthers();
  poisoned.value = values.PoisonOthers();
  auto outputs = Compute(*AttentionProblem::Create(poisoned.Args()));
  if (!outputs.ok()) return outputs.status().ToString();
  // Before the bias, scores are told of excluded keys too.
  if (problem.score_stage() != ScoreStage::kBiased) outputs->scores = want.scores;
  return DifferentBits(want, *outputs);
}

}  // namespace

std::string FaultOf(const Request& request, const Request& neighbour) {
  const auto problem = AttentionProblem::Create(request.Args());
  const auto other = AttentionProblem::Create(neighbour.Args());
  if (!problem.ok()) return Because("a valid request", problem.status().ToString());
  if (!other.ok()) return Because("a valid neighbour", other.status().ToString());
  const auto alone = Compute(*problem, OneThread());
  const auto other_alone = Compute(*other, OneThread());
  if (!alone.ok()) return Because("alone", alone.status().ToString());
  if (!other_alone.ok()) return Because("the neighbour alone", other_alone.status().ToString());
  std::string fault = Because("against the reference",
                              DifferenceFromReference(*problem, *alone, Accuracy::kAnyScores));
  if (fault.empty())
    fault = Because("two threads, odd addresses", FaultOfMisaligned(request, *alone));
  if (fault.empty()) {
    fault = Because("in one batch", FaultOfBatch({&*problem, &*other}, {&*alone, &*other_alone}));
  }
  if (fault.empty())
    fault = Because("unseen keys poisoned", FaultOfUnseen(request, *problem, *alone));
  return fault;
}

}  // namespace attend::testing

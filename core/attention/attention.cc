#include "core/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/attention/key_value.h"
#include "core/attention/tile_kernel.h"
#include "core/base/buffer_pool.h"
#include "core/gemm/tile_gemm.h"
#include "core/simd/target.h"

namespace attend {

class AttentionEngine::Impl {
 public:
  Impl(int slots, BufferPool& memory) : memory_(memory) {
    scratch_.reserve(slots);
    for (int i = 0; i < slots; ++i) scratch_.emplace_back(gemms_);
  }

  TileGemmCache& gemms() { return gemms_; }
  TileScratch& scratch(int slot) { return scratch_[slot]; }
  BufferPool& memory() { return memory_; }

 private:
  BufferPool& memory_;
  TileGemmCache gemms_;
  std::vector<TileScratch> scratch_;
};

AttentionEngine::AttentionEngine(const Executor& executor, BufferPool& memory)
    : impl_(std::make_unique<Impl>(executor.num_slots(), memory)) {}
AttentionEngine::~AttentionEngine() = default;

std::int64_t AttentionEngine::primitives_created() const { return impl_->gemms().created(); }

void AttentionEngine::Warm() {
  for (const std::int32_t dim : {64, 128}) {
    for (std::int32_t n = kKeyStep; n <= kMaxKeyTile; n += kKeyStep) {
      // A failure is not lost: the first request of the shape meets it again and reports it.
      (void)impl_->gemms().Get({.m = kMaxQueryTile, .n = n, .k = dim, .transpose_b = true});
      (void)impl_->gemms().Get({.m = kMaxQueryTile, .n = dim, .k = n});
    }
  }
}

std::string CpuTarget() { return SimdTarget(); }

namespace {

// Floats that the parts of one KV head of an item take; 0 where there is one part, which needs
// none.
std::int64_t PartsFloats(const AttentionProblem& problem, const AttentionItem& item) {
  const std::int64_t parts = PartsOfTile(problem, item);
  return parts == 1 ? 0 : parts * TileKernel::PartFloats(problem, item);
}

}  // namespace

std::int64_t WorkingBytes(const AttentionProblem& problem) {
  // What a job and its problem keep for each item: generously, the item and its sources' views.
  constexpr auto kBytesPerItem = static_cast<std::int64_t>(4 * sizeof(AttentionItem));
  std::int64_t floats = 0;
  for (const AttentionItem& item : problem.items()) {
    floats += problem.kv_heads() * PartsFloats(problem, item);
  }
  return problem.batch() * kBytesPerItem + floats * static_cast<std::int64_t>(sizeof(float)) +
         GatheredRows::BytesNeeded(problem, &AttentionItem::key) +
         GatheredRows::BytesNeeded(problem, &AttentionItem::value);
}

namespace {

void FillFloats(std::byte* target, std::int64_t count, float value) {
  for (std::int64_t i = 0; i < count; ++i) {
    StoreUnaligned(target + i * static_cast<std::int64_t>(sizeof(float)), value);
  }
}

// How many FLOPs take as long as one float that is read from memory or written to it, and as a
// unit takes beside its work.
constexpr double kFlopsPerFloat = 16;
constexpr double kFlopsPerUnit = 50'000;

// What stage 0 writes beside gathered rows: weights and scores that no tile writes, and the output
// of padding.
double CostOfFilling(const AttentionProblem& problem) {
  const double heads = static_cast<double>(problem.batch() * problem.query_heads());
  const double rows = heads * static_cast<double>(problem.query_len());
  const int details =
      (problem.wants_weights() ? 1 : 0) + (problem.score_stage() != ScoreStage::kNone ? 1 : 0);
  const double of_row =
      static_cast<double>(problem.value_dim()) + details * static_cast<double>(problem.kv_len());
  return kFlopsPerFloat * rows * of_row;
}

// Products, or what reading the keys and values of few rows takes.
double CostOfTiles(const AttentionProblem& problem) {
  double source_floats = 0;
  for (const AttentionItem& item : problem.items()) {
    if (!HasFewRows(problem, item)) continue;
    source_floats += static_cast<double>(problem.kv_heads()) * static_cast<double>(item.kv_len) *
                     static_cast<double>(problem.head_dim() + problem.value_dim());
  }
  return static_cast<double>(problem.flops()) + kFlopsPerFloat * source_floats;
}

// Stage 0 gathers keys and values and fills what no tile writes; stage 1 computes the tiles, or
// parts of them; stage 2 joins the parts.
class AttentionJob : public TileJob {
 public:
  AttentionJob(AttentionEngine& engine, const AttentionProblem& problem,
               const AttentionOutputs& outputs, AttentionJobHooks hooks)
      : engine_(engine.impl()),
        problem_(problem),
        outputs_(outputs),
        hooks_(std::move(hooks)),
        keys_(problem, &AttentionItem::key, engine_.gemms().FormOfB(/*transpose_b=*/true)),
        values_(problem, &AttentionItem::value, engine_.gemms().FormOfB(/*transpose_b=*/false)),
        context_{problem_, keys_, values_, outputs_, engine_.gemms(), hooks_.should_stop} {
    first_tile_.push_back(0);
    std::int64_t part_floats = 0;
    for (std::int64_t i = 0; i < problem_.batch(); ++i) {
      const AttentionItem& item = problem_.items()[i];
      const std::int64_t parts = PartsOfTile(problem_, item);
      const std::int64_t units = problem_.kv_heads() * TilesOfItem(problem_, item) * parts;
      first_tile_.push_back(first_tile_.back() + units);
      if (parts == 1) continue;
      parted_.push_back({.item = i, .parts = parts, .first_float = part_floats});
      part_floats += problem_.kv_heads() * PartsFloats(problem_, item);
    }
    num_part_floats_ = part_floats;
  }

  bool Allocate() {
    if (num_part_floats_ > 0) {
      part_results_ =
          engine_.memory().Acquire(num_part_floats_ * static_cast<std::int64_t>(sizeof(float)));
      if (!part_results_.ok()) return false;
    }
    return keys_.Allocate(engine_.memory()) && values_.Allocate(engine_.memory());
  }

  int num_stages() const override { return 3; }

  std::int64_t num_units(int stage) const override {
    if (stage == 0) return keys_.num_units() + values_.num_units() + problem_.batch();
    if (stage == 1) return first_tile_.back();
    return static_cast<std::int64_t>(parted_.size()) * problem_.kv_heads();
  }

  std::int64_t unit_cost(int stage) const override {
    double cost = 0;  // of all units
    if (stage == 0) {
      cost = kFlopsPerFloat * static_cast<double>(keys_.num_floats() + values_.num_floats()) +
             CostOfFilling(problem_);
    } else if (stage == 1) {
      cost = CostOfTiles(problem_);
    } else {
      cost = kFlopsPerFloat * static_cast<double>(num_part_floats_);
    }
    const double of_unit = kFlopsPerUnit + cost / static_cast<double>(num_units(stage));
    return static_cast<std::int64_t>(std::min(of_unit, 1e18));
  }

  void RunUnit(int stage, std::int64_t unit, Worker& worker) override {
    if (stopped_.load(std::memory_order_relaxed)) return;
    if (hooks_.should_stop && hooks_.should_stop()) {
      return Stop(absl::CancelledError("the request was given up"));
    }
    TileScratch& scratch = engine_.scratch(worker.slot());
    if (!scratch.Reserve(keys_.padded_dim(), values_.padded_dim())) {
      return Stop(absl::ResourceExhaustedError("no memory for a worker's scratch"));
    }
    if (stage == 0) return Prepare(unit, scratch, worker);
    absl::Status status =
        stage == 1 ? RunTile(unit, scratch, worker) : JoinParts(unit, scratch, worker);
    if (!status.ok()) Stop(std::move(status));
  }

  void Finish() override {
    absl::Status status;
    {
      const absl::MutexLock lock(&mutex_);
      status = status_;
    }
    // Taken out first: the hook may destroy this job.
    const std::function<void(absl::Status)> on_finished = std::move(hooks_.on_finished);
    if (on_finished) on_finished(std::move(status));
  }

 private:
  void Prepare(std::int64_t unit, TileScratch& scratch, Worker& worker) {
    if (unit < keys_.num_units()) return keys_.RunUnit(unit, scratch.query.data());
    unit -= keys_.num_units();
    if (unit < values_.num_units()) return values_.RunUnit(unit, scratch.output.data());
    FillPadding(unit - values_.num_units(), worker);
  }

  // Writes what lies past an item's lengths.
  void FillPadding(std::int64_t b, Worker& worker) {
    for (std::int64_t head = 0; head < problem_.query_heads(); ++head) {
      FillPaddedRows(b, head);
      FillDetails(b, head, worker);
      worker.LetOthersRun();
    }
  }

  void FillPaddedRows(std::int64_t b, std::int64_t head) {
    const AttentionItem& item = problem_.items()[b];
    const std::int64_t row_bytes =
        problem_.value_dim() * static_cast<std::int64_t>(SizeOf(problem_.output_dtype()));
    const std::int64_t padded_rows =
        problem_.layout() == Layout::kPacked ? item.query_len : problem_.query_len();
    for (std::int64_t row = item.query_len; row < padded_rows; ++row) {
      const std::int64_t at = problem_.OutputOffset(b, head, row) / problem_.value_dim();
      std::fill_n(outputs_.output + at * row_bytes, row_bytes, std::byte{0});
      if (outputs_.lse == nullptr) continue;
      const std::int64_t lse_at = problem_.LseOffset(b, head, row);
      FillFloats(outputs_.lse + lse_at * static_cast<std::int64_t>(sizeof(float)), 1,
                 -std::numeric_limits<float>::infinity());
    }
  }

  // Of keys that no tile writes a weight or score for.
  void FillDetails(std::int64_t b, std::int64_t head, Worker& worker) {
    if (outputs_.weights == nullptr && outputs_.scores == nullptr) return;
    const bool biased = problem_.score_stage() == ScoreStage::kBiased;
    const float no_score = biased ? -std::numeric_limits<float>::infinity() : 0;
    const std::int64_t first_row = (b * problem_.query_heads() + head) * problem_.query_len();
    for (std::int64_t row = first_row; row < first_row + problem_.query_len(); ++row) {
      const std::int64_t offset =
          row * problem_.kv_len() * static_cast<std::int64_t>(sizeof(float));
      if (outputs_.weights != nullptr) FillFloats(outputs_.weights + offset, problem_.kv_len(), 0);
      if (outputs_.scores != nullptr) {
        FillFloats(outputs_.scores + offset, problem_.kv_len(), no_score);
      }
      worker.LetOthersRun();
    }
  }

  // An item whose tiles are cut into parts.
  struct PartedItem {
    std::int64_t item = 0;
    std::int64_t parts = 0;
    std::int64_t first_float = 0;  // of its part_results_
  };

  // The results of the parts of a KV head.
  float* PartResults(const PartedItem& parted, std::int64_t kv_head) {
    return reinterpret_cast<float*>(part_results_.data()) + parted.first_float +
           kv_head * PartsFloats(problem_, problem_.items()[parted.item]);
  }

  absl::Status RunTile(std::int64_t unit, TileScratch& scratch, Worker& worker) {
    const auto after = std::upper_bound(first_tile_.begin(), first_tile_.end(), unit);
    const std::int64_t item = after - first_tile_.begin() - 1;
    const std::int64_t per_head = (first_tile_[item + 1] - first_tile_[item]) / problem_.kv_heads();
    const std::int64_t kv_head = (unit - first_tile_[item]) / per_head;
    const std::int64_t index = (unit - first_tile_[item]) % per_head;
    const auto parted = std::lower_bound(
        parted_.begin(), parted_.end(), item,
        [](const PartedItem& entry, std::int64_t value) { return entry.item < value; });
    if (parted == parted_.end() || parted->item != item) {
      return TileKernel(context_, scratch, worker, item, kv_head, index).Run();
    }
    float* const result = PartResults(*parted, kv_head) +
                          index * TileKernel::PartFloats(problem_, problem_.items()[item]);
    return TileKernel(context_, scratch, worker, item, kv_head, 0).RunPart(index, result);
  }

  absl::Status JoinParts(std::int64_t unit, TileScratch& scratch, Worker& worker) {
    const PartedItem& parted = parted_[unit / problem_.kv_heads()];
    const std::int64_t kv_head = unit % problem_.kv_heads();
    return TileKernel(context_, scratch, worker, parted.item, kv_head, 0)
        .JoinParts(parted.parts, PartResults(parted, kv_head));
  }

  // Keeps the first reason.
  void Stop(absl::Status status) {
    const absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(status);
    stopped_.store(true, std::memory_order_relaxed);
  }

  AttentionEngine::Impl& engine_;
  const AttentionProblem& problem_;
  const AttentionOutputs outputs_;
  AttentionJobHooks hooks_;
  GatheredRows keys_;
  GatheredRows values_;
  const TileContext context_;
  std::vector<std::int64_t> first_tile_;  // [batch + 1], counting parts
  std::vector<PartedItem> parted_;
  std::int64_t num_part_floats_ = 0;
  PooledBuffer part_results_;
  std::atomic<bool> stopped_{false};
  absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

double ComputeCost(const AttentionProblem& problem) {
  double units = 0;
  for (const AttentionItem& item : problem.items()) {
    units += 1 + static_cast<double>(problem.kv_heads() * TilesOfItem(problem, item) *
                                     PartsOfTile(problem, item));
  }
  return kFlopsPerUnit * units + CostOfFilling(problem) + CostOfTiles(problem) +
         kFlopsPerFloat * static_cast<double>(WorkingBytes(problem)) / sizeof(float);
}

absl::StatusOr<std::unique_ptr<TileJob>> MakeAttentionJob(AttentionEngine& engine,
                                                          const AttentionProblem& problem,
                                                          const AttentionOutputs& outputs,
                                                          AttentionJobHooks hooks) {
  try {
    auto job = std::make_unique<AttentionJob>(engine, problem, outputs, std::move(hooks));
    if (job->Allocate()) return job;
  } catch (const std::bad_alloc&) {
    // Reported below, as is a failure that the job tells.
  }
  return absl::ResourceExhaustedError("no memory for the request's keys and values");
}

absl::Status ComputeAttention(AttentionEngine& engine, Executor& executor,
                              const AttentionProblem& problem, const AttentionOutputs& outputs) {
  absl::Status result;
  AttentionJobHooks hooks;
  hooks.on_finished = [&result](absl::Status status) { result = std::move(status); };
  absl::StatusOr<std::unique_ptr<TileJob>> job =
      MakeAttentionJob(engine, problem, outputs, std::move(hooks));
  if (!job.ok()) return job.status();
  TileJob* const jobs[] = {job->get()};
  try {
    executor.Run(jobs);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory to start the request");
  }
  return result;
}

}  // namespace attend

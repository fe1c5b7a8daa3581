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
#include "core/gemm/tile_gemm.h"
#include "core/simd/target.h"

namespace attend {

class AttentionEngine::Impl {
 public:
  explicit Impl(int workers) {
    scratch_.reserve(workers);
    for (int i = 0; i < workers; ++i) scratch_.emplace_back(gemms_);
  }

  TileGemmCache& gemms() { return gemms_; }
  TileScratch& scratch(int worker) { return scratch_[worker]; }

 private:
  TileGemmCache gemms_;
  std::vector<TileScratch> scratch_;
};

AttentionEngine::AttentionEngine(int workers) : impl_(std::make_unique<Impl>(workers)) {}
AttentionEngine::~AttentionEngine() = default;

std::int64_t AttentionEngine::primitives_created() const { return impl_->gemms().created(); }

void AttentionEngine::Warm() {
  for (const std::int32_t dim : {64, 128}) {
    for (const std::int64_t rows : {QueryTileRows(1), QueryTileRows(kMaxQueryTile)}) {
      const auto m = static_cast<std::int32_t>(rows);
      for (std::int32_t n = kKeyStep; n <= kMaxKeyTile; n += kKeyStep) {
        // A failure is not lost: the first request of the shape meets it again and reports it.
        (void)impl_->gemms().Get({.m = m, .n = n, .k = dim, .transpose_b = true});
        (void)impl_->gemms().Get({.m = m, .n = dim, .k = n});
      }
    }
  }
}

std::string CpuTarget() { return SimdTarget(); }

std::int64_t WorkingBytes(const AttentionProblem& problem) {
  // What a job and its problem keep for each item: generously, the item and its sources' views.
  constexpr auto kBytesPerItem = static_cast<std::int64_t>(4 * sizeof(AttentionItem));
  return problem.batch() * kBytesPerItem + GatheredRows::BytesNeeded(problem, &AttentionItem::key) +
         GatheredRows::BytesNeeded(problem, &AttentionItem::value);
}

namespace {

void FillFloats(std::byte* target, std::int64_t count, float value) {
  for (std::int64_t i = 0; i < count; ++i) {
    StoreUnaligned(target + i * static_cast<std::int64_t>(sizeof(float)), value);
  }
}

// Stage 0 gathers keys and values and fills what no tile writes; stage 1 computes the tiles.
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
    for (const AttentionItem& item : problem_.items()) {
      const std::int64_t rows = RowsOfItem(problem_, item);
      const std::int64_t tile_rows = QueryTileRows(rows);
      const std::int64_t tiles = problem_.kv_heads() * ((rows + tile_rows - 1) / tile_rows);
      first_tile_.push_back(first_tile_.back() + tiles);
    }
  }

  bool Allocate() { return keys_.Allocate() && values_.Allocate(); }

  int num_stages() const override { return 2; }

  std::int64_t num_units(int stage) const override {
    if (stage == 0) return keys_.num_units() + values_.num_units() + problem_.batch();
    return first_tile_.back();
  }

  void RunUnit(int stage, std::int64_t unit, int worker) override {
    if (stopped_.load(std::memory_order_relaxed)) return;
    if (hooks_.should_stop && hooks_.should_stop()) {
      return Stop(absl::CancelledError("the request was given up"));
    }
    TileScratch& scratch = engine_.scratch(worker);
    if (!scratch.Reserve(keys_.padded_dim(), values_.padded_dim())) {
      return Stop(absl::ResourceExhaustedError("no memory for a worker's scratch"));
    }
    if (stage == 0) return Prepare(unit, scratch);
    RunTile(unit, scratch);
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
  void Prepare(std::int64_t unit, TileScratch& scratch) {
    if (unit < keys_.num_units()) return keys_.RunUnit(unit, scratch.query.data());
    unit -= keys_.num_units();
    if (unit < values_.num_units()) return values_.RunUnit(unit, scratch.output.data());
    FillPadding(unit - values_.num_units());
  }

  // Writes what lies past an item's lengths.
  void FillPadding(std::int64_t b) {
    const AttentionItem& item = problem_.items()[b];
    const std::int64_t row_bytes =
        problem_.value_dim() * static_cast<std::int64_t>(SizeOf(problem_.output_dtype()));
    const std::int64_t padded_rows =
        problem_.layout() == Layout::kPacked ? item.query_len : problem_.query_len();
    for (std::int64_t head = 0; head < problem_.query_heads(); ++head) {
      for (std::int64_t row = item.query_len; row < padded_rows; ++row) {
        const std::int64_t at = problem_.OutputOffset(b, head, row) / problem_.value_dim();
        std::fill_n(outputs_.output + at * row_bytes, row_bytes, std::byte{0});
        if (outputs_.lse == nullptr) continue;
        const std::int64_t lse_at = problem_.LseOffset(b, head, row);
        FillFloats(outputs_.lse + lse_at * static_cast<std::int64_t>(sizeof(float)), 1,
                   -std::numeric_limits<float>::infinity());
      }
    }
    const std::int64_t scores = problem_.query_heads() * problem_.query_len() * problem_.kv_len();
    const std::int64_t offset = b * scores * static_cast<std::int64_t>(sizeof(float));
    if (outputs_.weights != nullptr) FillFloats(outputs_.weights + offset, scores, 0);
    const bool biased = problem_.score_stage() == ScoreStage::kBiased;
    if (outputs_.scores != nullptr) {
      FillFloats(outputs_.scores + offset, scores,
                 biased ? -std::numeric_limits<float>::infinity() : 0);
    }
  }

  void RunTile(std::int64_t unit, TileScratch& scratch) {
    const auto after = std::upper_bound(first_tile_.begin(), first_tile_.end(), unit);
    const std::int64_t item = after - first_tile_.begin() - 1;
    const std::int64_t tiles = (first_tile_[item + 1] - first_tile_[item]) / problem_.kv_heads();
    const std::int64_t index = unit - first_tile_[item];
    TileKernel kernel(context_, scratch, item, index / tiles, index % tiles);
    absl::Status status = kernel.Run();
    if (!status.ok()) Stop(std::move(status));
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
  std::vector<std::int64_t> first_tile_;  // [batch + 1]
  std::atomic<bool> stopped_{false};
  absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

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
  executor.Run(jobs);
  return result;
}

}  // namespace attend

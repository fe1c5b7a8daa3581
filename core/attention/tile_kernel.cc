#include "core/attention/tile_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/simd/convert.h"

namespace attend {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLog2E = std::numbers::log2e_v<float>;

// Rows that are converted together where they cannot be multiplied as they came.
constexpr std::int64_t kStagedRows = 64;

// What a part keeps of a row beside its sums: maximum, denominator, whether it sees any key, and
// whether it may have met values that are not finite.
constexpr std::int64_t kStateFloats = kTileAlignment;

// Outside of these a scale is applied on its own: folded into the factor it could vanish, or make
// the factor infinite.
constexpr float kSmallestFoldedScale = 1e-30f;
constexpr float kLargestFoldedScale = 1e30f;

// Whether product and softmax are joined by a positive factor and nothing else.
bool IsPlain(const AttentionProblem& problem) {
  return problem.softcap() == 0 && !problem.has_alibi() && !problem.boolean_mask().has_value() &&
         !problem.additive_mask().has_value() && !problem.block_mask().has_value() &&
         problem.scale() > kSmallestFoldedScale && problem.scale() < kLargestFoldedScale;
}

absl::Status GivenUp() { return absl::CancelledError("the request was given up"); }

}  // namespace

std::int64_t TilesOfItem(const AttentionProblem& problem, const AttentionItem& item) {
  return (RowsOfItem(problem, item) + kMaxQueryTile - 1) / kMaxQueryTile;
}

std::int64_t PartsOfTile(const AttentionProblem& problem, const AttentionItem& item) {
  if (TilesOfItem(problem, item) != 1) return 1;
  return std::max<std::int64_t>(1, (item.kv_len + kPartKeys - 1) / kPartKeys);
}

bool TileScratch::Reserve(std::int64_t padded_head_dim, std::int64_t padded_value_dim) {
  if (padded_head_dim > head_dim_ || padded_value_dim > value_dim_) {
    const std::int64_t head_dim = std::max(padded_head_dim, head_dim_);
    const std::int64_t value_dim = std::max(padded_value_dim, value_dim_);
    head_dim_ = value_dim_ = 0;  // so that a failure is tried again
    query = AlignedBuffer(kMaxQueryTile * head_dim);
    output = AlignedBuffer(kMaxQueryTile * value_dim);
    terms = AlignedBuffer(kMaxQueryTile * value_dim);
    scores = AlignedBuffer(kMaxQueryTile * kMaxKeyTile);
    bias = AlignedBuffer(kMaxKeyTile);
    row = AlignedBuffer(std::max({head_dim, value_dim, kMaxKeyTile}));
    staged = AlignedBuffer(kStagedRows * std::max(head_dim, value_dim));
    for (const AlignedBuffer* buffer : {&query, &output, &terms, &scores, &bias, &row, &staged}) {
      if (!buffer->ok()) return false;
    }
    std::fill(bias.data(), bias.data() + kMaxKeyTile, 0.0f);
    head_dim_ = head_dim;
    value_dim_ = value_dim;
  }
  return true;
}

TileKernel::TileKernel(const TileContext& context, TileScratch& scratch, Worker& worker,
                       std::int64_t item, std::int64_t kv_head, std::int64_t tile)
    : context_(context),
      problem_(context.problem),
      scratch_(scratch),
      worker_(worker),
      item_index_(item),
      item_(context.problem.items()[item]),
      kv_head_(kv_head),
      head_dim_(context.keys.padded_dim()),
      value_dim_(context.values.padded_dim()),
      few_rows_(HasFewRows(context.problem, item_)),
      plain_(IsPlain(context.problem)),
      factor_(plain_ ? context.problem.scale() * kLog2E : kLog2E) {
  first_row_ = tile * kMaxQueryTile;
  num_rows_ = std::min(kMaxQueryTile, RowsOfItem(problem_, item_) - first_row_);
  const std::int64_t group = problem_.group_size();
  keys_ = {item_.kv_len, 0};
  std::int64_t query = first_row_ / group;
  std::int64_t head = first_row_ % group;  // of the group
  for (std::int64_t r = 0; r < num_rows_; ++r) {
    Row& row = rows_[r];
    row.query = query;
    row.head = kv_head_ * group + head;
    if (++head == group) {
      head = 0;
      ++query;
    }
    row.keys = problem_.VisibleKeys(item_, row.query);
    states_[r] = {.maximum = -kInfinity, .sum = 0};
    if (row.keys.begin >= row.keys.end) continue;
    keys_.begin = std::min(keys_.begin, row.keys.begin);
    keys_.end = std::max(keys_.end, row.keys.end);
  }
  keys_.begin = keys_.begin / kKeyStep * kKeyStep;
}

absl::Status TileKernel::Run() {
  PackQueries();
  absl::Status status = Accumulate(keys_);
  return status.ok() ? Finish() : status;
}

std::int64_t TileKernel::PartFloats(const AttentionProblem& problem, const AttentionItem& item) {
  const std::int64_t rows = std::min(RowsOfItem(problem, item), kMaxQueryTile);
  return rows * (RoundUp(problem.value_dim(), kDimStep) + kStateFloats);
}

absl::Status TileKernel::RunPart(std::int64_t part, float* result) {
  PackQueries();
  absl::Status status = Accumulate(
      {std::max(keys_.begin, part * kPartKeys), std::min(keys_.end, (part + 1) * kPartKeys)});
  if (status.ok()) SavePart(result);
  return status;
}

absl::Status TileKernel::JoinParts(std::int64_t parts, float* results) {
  for (std::int64_t part = 0; part < parts; ++part) {
    AddPart(results + part * PartFloats(problem_, item_), part == 0);
  }
  if (WantsDetails()) PackQueries();
  return Finish();
}

void TileKernel::SavePart(float* result) const {
  float* state = result + num_rows_ * value_dim_;
  std::copy_n(scratch_.output.data(), num_rows_ * value_dim_, result);
  for (std::int64_t r = 0; r < num_rows_; ++r, state += kStateFloats) {
    state[0] = states_[r].maximum;
    state[1] = states_[r].sum;
    state[2] = rows_[r].sees_any ? 1.0f : 0.0f;
    state[3] = non_finite_values_ ? 1.0f : 0.0f;
  }
}

// Adds sums that were taken below another maximum: both are brought to the larger of the two.
void TileKernel::AddPart(float* result, bool first) {
  float* const output = scratch_.output.data();
  float before[kMaxQueryTile];
  float added[kMaxQueryTile];
  const float* state = result + num_rows_ * value_dim_;
  for (std::int64_t r = 0; r < num_rows_; ++r, state += kStateFloats) {
    Row& row = rows_[r];
    const float maximum = std::max(states_[r].maximum, state[0]);
    const auto factor = [&](float of) {
      return of == maximum ? 1.0f : std::exp2(factor_ * (of - maximum));
    };
    before[r] = factor(states_[r].maximum);
    added[r] = factor(state[0]);
    states_[r].sum = states_[r].sum * before[r] + state[1] * added[r];
    states_[r].maximum = maximum;
    row.sees_any = row.sees_any || state[2] != 0;
    non_finite_values_ = non_finite_values_ || state[3] != 0;
  }
  if (first) {
    std::copy_n(result, num_rows_ * value_dim_, output);
    return;
  }
  ScaleRows(added, num_rows_, value_dim_, result);
  AddToScaledRows(before, num_rows_, value_dim_, result, output);
}

// Unnormalised sums over keys of a range, into scratch_.output and the rows' states.
absl::Status TileKernel::Accumulate(KeyRange keys) {
  bool first = true;
  for (std::int64_t key = keys.begin; key < keys.end;) {
    if (!PauseAndGoOn()) return GivenUp();
    const std::int64_t count = std::min(kMaxKeyTile, RoundUp(keys.end - key, kKeyStep));
    if (!BlocksExclude(key, count)) {
      absl::Status status = RunKeyTile(key, count, first);
      if (!status.ok()) return status;
      first = false;
    }
    key += count;
  }
  if (first) std::fill_n(scratch_.output.data(), num_rows_ * value_dim_, 0.0f);
  return absl::OkStatus();
}

absl::Status TileKernel::Finish() {
  for (std::int64_t r = 0; r < num_rows_; ++r) Normalize(rows_[r], states_[r]);
  absl::Status status = AddNonFiniteValues();
  if (!status.ok()) return status;
  StoreRows();
  return StoreDetails();
}

// Lets short units of other jobs run, and says whether this one is still wanted.
bool TileKernel::PauseAndGoOn() {
  worker_.LetOthersRun();
  return !context_.should_stop || !context_.should_stop();
}

// The tile's queries where they lie, if they lie there as the products read them. Never those of
// few rows, whose products want them aligned.
const float* TileKernel::QueriesInPlace() const {
  const TensorView& view = item_.query;
  const bool dense = view.strides[2] == 1 && view.strides[1] == head_dim_;
  static_assert(kFewRows < kMaxQueryTile);
  const bool whole = num_rows_ == kMaxQueryTile && problem_.group_size() == 1;
  if (view.dtype != DType::kFloat32 || !dense || !whole || problem_.head_dim() != head_dim_) {
    return nullptr;
  }
  const std::byte* first =
      view.at(rows_[0].head * view.strides[0] + rows_[0].query * view.strides[1]);
  return reinterpret_cast<std::uintptr_t>(first) % alignof(float) == 0
             ? reinterpret_cast<const float*>(first)
             : nullptr;
}

void TileKernel::PackQueries() {
  queries_ = QueriesInPlace();
  if (queries_ != nullptr) return;
  queries_ = scratch_.query.data();
  const std::int64_t rows = few_rows_ ? num_rows_ : kMaxQueryTile;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* target = scratch_.query.data() + r * head_dim_;
    const std::int64_t filled = r < num_rows_ ? problem_.head_dim() : 0;
    std::fill(target + filled, target + head_dim_, 0.0f);
    if (filled > 0) LoadStridedRow(item_.query, rows_[r].head, rows_[r].query, filled, target);
  }
}

absl::Status TileKernel::Multiply(std::int64_t n, std::int64_t k, bool transpose, const float* a,
                                  const float* b, float* c) {
  absl::StatusOr<const TileGemm*> gemm =
      context_.gemms.Get({.m = static_cast<std::int32_t>(kMaxQueryTile),
                          .n = static_cast<std::int32_t>(n),
                          .k = static_cast<std::int32_t>(k),
                          .transpose_b = transpose});
  if (!gemm.ok()) return gemm.status();
  return scratch_.runner.Run(**gemm, a, b, c);
}

// The products of the tile's queries with `count` keys, into scratch_.scores [rows, count].
absl::Status TileKernel::Scores(std::int64_t first_key, std::int64_t count) {
  if (few_rows_) {
    ScoresOfSource(first_key, count);
    return absl::OkStatus();
  }
  absl::Status status =
      Multiply(count, head_dim_, /*transpose=*/true, queries_,
               context_.keys.Rows(item_index_, kv_head_, first_key), scratch_.scores.data());
  if (status.ok() && context_.keys.AnyNonFinite(item_index_, kv_head_, first_key, count)) {
    RescoreNonFiniteKeys(first_key, count);
  }
  return status;
}

absl::Status TileKernel::RunKeyTile(std::int64_t first_key, std::int64_t count, bool first) {
  absl::Status status = Scores(first_key, count);
  if (!status.ok()) return status;
  float* const scores = scratch_.scores.data();
  ColumnRange columns[kMaxQueryTile];
  for (std::int64_t r = 0; r < num_rows_; ++r) {
    columns[r] = ColumnsOf(rows_[r], first_key, count);
    FinishScores(rows_[r], first_key, columns[r], scores + r * count);
  }
  float corrections[kMaxQueryTile];
  SoftmaxStep(factor_, num_rows_, count, columns, scores, states_, corrections);
  float* const output = scratch_.output.data();
  float* const terms = first ? output : scratch_.terms.data();
  status = Terms(first_key, count, terms);
  if (status.ok() && !first) AddToScaledRows(corrections, num_rows_, value_dim_, terms, output);
  return status;
}

// The products of the weights in scratch_.scores with `count` values, those that are not finite as
// zeros.
absl::Status TileKernel::Terms(std::int64_t first_key, std::int64_t count, float* terms) {
  if (few_rows_) {
    TermsOfSource(first_key, count, terms);
    return absl::OkStatus();
  }
  return Multiply(value_dim_, count, /*transpose=*/false, scratch_.scores.data(),
                  context_.values.Rows(item_index_, kv_head_, first_key), terms);
}

// Calls body(index of the first, rows) for up to `count` rows as they came, or a copy of them in
// float32 where they cannot be multiplied so, or shall have zeros for what is not finite.
template <typename Body>
void TileKernel::ForSourceRows(const RowReader& reader, bool finite_only, std::int64_t first_key,
                               std::int64_t count, Body body) {
  const std::int64_t end = std::min(first_key + count, item_.kv_len);
  const SourceRows rows = reader.Source(item_index_, kv_head_, first_key, end - first_key);
  if (rows.data != nullptr && !finite_only) return body(0, rows);
  const std::int64_t columns = reader.padded_dim();
  float* const staged = scratch_.staged.data();
  for (std::int64_t begin = first_key; begin < end; begin += kStagedRows) {
    const std::int64_t num_rows = std::min(kStagedRows, end - begin);
    for (std::int64_t j = 0; j < num_rows; ++j) {
      reader.LoadOriginal(item_index_, kv_head_, begin + j, staged + j * columns);
    }
    if (finite_only) ZeroNonFinite(staged, num_rows * columns);
    body(begin - first_key, SourceRows{.data = reinterpret_cast<const std::byte*>(staged),
                                       .stride = columns * static_cast<std::int64_t>(sizeof(float)),
                                       .count = num_rows,
                                       .dtype = DType::kFloat32});
  }
}

void TileKernel::ScoresOfSource(std::int64_t first_key, std::int64_t count) {
  ForSourceRows(
      context_.keys, false, first_key, count, [&](std::int64_t index, const SourceRows& keys) {
        ScoreRows(keys, head_dim_, num_rows_, queries_, count, scratch_.scores.data() + index);
      });
}

void TileKernel::TermsOfSource(std::int64_t first_key, std::int64_t count, float* terms) {
  const auto weigh = [&](bool finite_only) {
    std::fill_n(terms, num_rows_ * value_dim_, 0.0f);
    ForSourceRows(context_.values, finite_only, first_key, count,
                  [&](std::int64_t index, const SourceRows& values) {
                    WeighRows(values, value_dim_, num_rows_, count, scratch_.scores.data() + index,
                              terms);
                  });
  };
  weigh(false);
  if (AllFinite(terms, num_rows_ * value_dim_)) return;
  // A value, or a weight, is not finite. Values that are not are added where they are seen.
  non_finite_values_ = true;
  weigh(true);
}

// Keys that are not finite took part in the product as zeros: gives them the scores that they have.
// Rows that do not see them lose these again to -inf.
void TileKernel::RescoreNonFiniteKeys(std::int64_t first_key, std::int64_t count) {
  float* key = scratch_.row.data();
  const std::int64_t last = std::min(first_key + count, item_.kv_len);
  for (std::int64_t j = first_key; j < last; ++j) {
    if (j % kKeyStep == 0 && !context_.keys.AnyNonFinite(item_index_, kv_head_, j, kKeyStep)) {
      j += kKeyStep - 1;
      continue;
    }
    context_.keys.LoadOriginal(item_index_, kv_head_, j, key);
    if (std::all_of(key, key + head_dim_, [](float k) { return std::isfinite(k); })) continue;
    for (std::int64_t r = 0; r < num_rows_; ++r) {
      const float* query = queries_ + r * head_dim_;
      float product = 0;
      for (std::int64_t d = 0; d < problem_.head_dim(); ++d) product += query[d] * key[d];
      scratch_.scores.data()[r * count + j - first_key] = product;
    }
  }
}

ColumnRange TileKernel::ColumnsOf(const Row& row, std::int64_t first_key,
                                  std::int64_t count) const {
  const std::int64_t begin = std::clamp<std::int64_t>(row.keys.begin - first_key, 0, count);
  return {begin, std::clamp<std::int64_t>(row.keys.end - first_key, begin, count)};
}

// Makes of a row's products, in the columns that it may see, what its softmax is taken of.
void TileKernel::FinishScores(Row& row, std::int64_t first_key, ColumnRange columns,
                              float* scores) {
  if (columns.begin >= columns.end) return;
  if (plain_) {
    row.sees_any = true;
    return;
  }
  ScoreTransform transform = TransformOf(row, first_key);
  if (HasBias()) {
    BuildBias(row, first_key, columns, scratch_.bias.data());
    transform.bias = scratch_.bias.data();
  }
  const bool sees_any = TransformScores(transform, columns.begin, columns.end, scores);
  row.sees_any = row.sees_any || sees_any;
}

ScoreTransform TileKernel::TransformOf(const Row& row, std::int64_t first_key) const {
  return {.scale = problem_.scale(),
          .softcap = problem_.softcap(),
          .alibi_slope = problem_.alibi_slope(item_index_, row.head),
          .position = static_cast<float>(row.query + item_.offset - first_key)};
}

bool TileKernel::HasBias() const {
  return problem_.boolean_mask().has_value() || problem_.additive_mask().has_value() ||
         problem_.block_mask().has_value();
}

// Whether blocks exclude all of the tile's rows from `count` keys.
bool TileKernel::BlocksExclude(std::int64_t first_key, std::int64_t count) const {
  if (!problem_.block_mask().has_value()) return false;
  const BlockMaskView& mask = *problem_.block_mask();
  const std::int64_t first = first_key / mask.key_block_size;
  const std::int64_t last = (std::min(first_key + count, item_.kv_len) - 1) / mask.key_block_size;
  for (std::int64_t r = 0; r < num_rows_; ++r) {
    const std::int64_t query_block = rows_[r].query / mask.query_block_size;
    for (std::int64_t block = first; block <= last; ++block) {
      const std::byte on = *mask.blocks.at(item_index_, rows_[r].head, query_block, block);
      if (on != std::byte{0}) return false;
    }
  }
  return true;
}

// What masks and blocks add to the scores of the columns: finite values, and -inf to exclude.
void TileKernel::BuildBias(const Row& row, std::int64_t first_key, ColumnRange columns,
                           float* bias) const {
  const std::int64_t count = columns.end - columns.begin;
  if (count == 0) return;
  const std::int64_t key = first_key + columns.begin;
  float* out = bias + columns.begin;
  std::fill(out, out + count, 0.0f);
  if (problem_.additive_mask().has_value()) {
    const BroadcastView& mask = *problem_.additive_mask();
    const std::byte* source = mask.at(item_index_, row.head, row.query, key);
    if (mask.strides[3] == 1) {
      LoadRow(mask.dtype, source, count, out);
    } else {
      const std::int64_t step = mask.strides[3] * static_cast<std::int64_t>(SizeOf(mask.dtype));
      for (std::int64_t j = 0; j < count; ++j) out[j] = LoadFloat(mask.dtype, source + j * step);
    }
  }
  if (problem_.boolean_mask().has_value()) {
    const BroadcastView& mask = *problem_.boolean_mask();
    const std::byte* source = mask.at(item_index_, row.head, row.query, key);
    for (std::int64_t j = 0; j < count; ++j) {
      out[j] = source[j * mask.strides[3]] == std::byte{0} ? -kInfinity : out[j];
    }
  }
  if (!problem_.block_mask().has_value()) return;
  const BlockMaskView& mask = *problem_.block_mask();
  for (std::int64_t j = 0; j < count;) {
    const std::int64_t block = (key + j) / mask.key_block_size;
    const std::int64_t next = std::min(count, (block + 1) * mask.key_block_size - key);
    const std::byte on =
        *mask.blocks.at(item_index_, row.head, row.query / mask.query_block_size, block);
    if (on == std::byte{0}) std::fill(out + j, out + next, -kInfinity);
    j = next;
  }
}

bool TileKernel::Visible(const Row& row, std::int64_t key) const {
  if (key < row.keys.begin || key >= row.keys.end) return false;
  float bias = 0;
  BuildBias(row, key, {0, 1}, &bias);
  return bias != -kInfinity;
}

// Settles the row's denominator, and its maximum in logits.
void TileKernel::Normalize(Row& row, SoftmaxRow& state) const {
  if (state.maximum == -kInfinity && !row.sees_any) return;  // inverse 0: zeros
  if (plain_) state.maximum *= problem_.scale();
  if (!std::isfinite(state.maximum)) state.sum = kNan;  // an infinite score
  double sum = state.sum;
  // In double: a sink far above the scores may overflow float, and then the weights are 0.
  if (problem_.has_sinks()) sum += std::exp(double{problem_.sink(row.head)} - state.maximum);
  row.inverse = static_cast<float>(1.0 / sum);
}

void TileKernel::NormalizeOutput() {
  if (normalized_) return;
  for (std::int64_t r = 0; r < num_rows_; ++r) {
    ScaleRows(&rows_[r].inverse, 1, value_dim_, scratch_.output.data() + r * value_dim_);
  }
  normalized_ = true;
}

// Values that are not finite took part in the product as zeros: adds them to the rows, normalised
// before, that see them. A weight is positive, so it makes of an infinity an infinity.
absl::Status TileKernel::AddNonFiniteValues() {
  float* value = scratch_.row.data();
  const auto is_finite = [](float v) { return std::isfinite(v); };
  if (few_rows_ && !non_finite_values_) return absl::OkStatus();
  for (std::int64_t step = keys_.begin; step < keys_.end; step += kKeyStep) {
    if (!few_rows_ && !context_.values.AnyNonFinite(item_index_, kv_head_, step, kKeyStep)) {
      continue;
    }
    if (!PauseAndGoOn()) return GivenUp();
    for (std::int64_t key = step; key < std::min(step + kKeyStep, keys_.end); ++key) {
      context_.values.LoadOriginal(item_index_, kv_head_, key, value);
      if (std::all_of(value, value + problem_.value_dim(), is_finite)) continue;
      NormalizeOutput();
      for (std::int64_t r = 0; r < num_rows_; ++r) {
        if (!Visible(rows_[r], key)) continue;
        float* output = scratch_.output.data() + r * value_dim_;
        for (std::int64_t d = 0; d < problem_.value_dim(); ++d) {
          if (!std::isfinite(value[d])) output[d] += value[d];
        }
      }
    }
  }
  return absl::OkStatus();
}

// Of a sum that vanished or is NaN, the sign may be that of a value that its row does not see, so
// what is stored has none.
void TileKernel::StoreRows() {
  const DType dtype = problem_.output_dtype();
  const auto size = static_cast<std::int64_t>(SizeOf(dtype));
  for (std::int64_t r = 0; r < num_rows_; ++r) {
    const Row& row = rows_[r];
    const std::int64_t at = problem_.OutputOffset(item_index_, row.head, row.query);
    StoreRow(dtype, scratch_.output.data() + r * value_dim_, normalized_ ? 1.0f : row.inverse,
             problem_.value_dim(), context_.outputs.output + at * size);
    if (context_.outputs.lse == nullptr) continue;
    const float lse = states_[r].maximum + std::log(states_[r].sum);
    const std::int64_t lse_at = problem_.LseOffset(item_index_, row.head, row.query);
    StoreUnaligned(context_.outputs.lse + lse_at * static_cast<std::int64_t>(sizeof(float)),
                   row.sees_any ? OneNan(lse) : -kInfinity);
  }
}

bool TileKernel::WantsDetails() const {
  return context_.outputs.weights != nullptr || context_.outputs.scores != nullptr;
}

// Scores and weights, where they are asked for: a second look at the keys, now that the rows'
// denominators are known.
absl::Status TileKernel::StoreDetails() {
  if (!WantsDetails()) return absl::OkStatus();
  for (std::int64_t key = 0; key < item_.kv_len;) {
    if (!PauseAndGoOn()) return GivenUp();
    const std::int64_t count = std::min(kMaxKeyTile, RoundUp(item_.kv_len - key, kKeyStep));
    absl::Status status = Scores(key, count);
    if (!status.ok()) return status;
    for (std::int64_t r = 0; r < num_rows_; ++r) {
      StoreDetailRow(r, key, count, scratch_.scores.data() + r * count);
    }
    key += count;
  }
  return absl::OkStatus();
}

void TileKernel::StoreDetailRow(std::int64_t r, std::int64_t first_key, std::int64_t count,
                                float* scores) {
  const Row& row = rows_[r];
  const ColumnRange columns = ColumnsOf(row, first_key, count);
  const std::int64_t valid = std::min(count, item_.kv_len - first_key);
  const ScoreStage stage = problem_.score_stage();
  const std::int64_t at =
      ((item_index_ * problem_.query_heads() + row.head) * problem_.query_len() + row.query) *
          problem_.kv_len() +
      first_key;
  ScoreTransform transform = TransformOf(row, first_key);
  float* bias = scratch_.bias.data();
  const auto store_scores = [&](std::int64_t begin, std::int64_t end, const float* from) {
    StoreRow(DType::kFloat32, from + begin, 1.0f, end - begin,
             context_.outputs.scores + (at + begin) * static_cast<std::int64_t>(sizeof(float)));
  };
  if (stage == ScoreStage::kScaled || stage == ScoreStage::kCapped) {
    float* copy = scratch_.row.data();
    std::copy(scores, scores + count, copy);
    ScoreTransform partial{.scale = transform.scale};
    if (stage == ScoreStage::kCapped) partial.softcap = transform.softcap;
    TransformScores(partial, 0, valid, copy);
    store_scores(0, valid, copy);
  }
  BuildBias(row, first_key, columns, bias);
  transform.bias = bias;
  TransformScores(transform, columns.begin, columns.end, scores);
  if (stage == ScoreStage::kBiased) store_scores(columns.begin, columns.end, scores);
  if (context_.outputs.weights == nullptr) return;
  for (std::int64_t j = columns.begin; j < columns.end; ++j) {
    const float weight = std::exp(scores[j] - states_[r].maximum) * row.inverse;
    StoreUnaligned(context_.outputs.weights + (at + j) * static_cast<std::int64_t>(sizeof(float)),
                   bias[j] == -kInfinity ? 0.0f : OneNan(weight));
  }
}

}  // namespace attend

#include "core/attention/key_value.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "core/simd/convert.h"
#include "core/simd/pack.h"

namespace attend {

namespace {

// Rows that one unit gathers: enough to pay for a task, few enough to spread a long context.
constexpr std::int64_t kRowsPerUnit = 1024;
static_assert(kRowsPerUnit % kKeyStep == 0);

// Whether all items read one and the same tensor (K or V of batch 1).
bool ItemsShare(const AttentionProblem& problem, TensorView AttentionItem::*which) {
  if (problem.layout() == Layout::kPacked || problem.batch() < 2) return false;
  const std::byte* first = (problem.items()[0].*which).data;
  return std::all_of(problem.items().begin(), problem.items().end(),
                     [&](const AttentionItem& item) { return (item.*which).data == first; });
}

}  // namespace

bool LoadStridedRow(const TensorView& view, std::int64_t head, std::int64_t row, std::int64_t count,
                    float* target) {
  const std::int64_t offset = head * view.strides[0] + row * view.strides[1];
  if (view.strides[2] == 1 || count == 1) {
    return LoadRow(view.dtype, view.at(offset), count, target);
  }
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    target[i] = LoadFloat(view.dtype, view.at(offset + i * view.strides[2]));
    finite = finite && std::isfinite(target[i]);
  }
  return finite;
}

// The tensors that items read: one each, or one for all that is the longest item's.
std::vector<GatheredRows::SourceTensor> GatheredRows::Sources(const AttentionProblem& problem,
                                                              TensorView AttentionItem::*which) {
  std::vector<SourceTensor> sources;
  const bool shared = ItemsShare(problem, which);
  for (const AttentionItem& item : problem.items()) {
    const TensorView& view = item.*which;
    if (!shared || sources.empty()) {
      sources.push_back({.view = view});
    } else if (view.shape[1] > sources[0].view.shape[1]) {
      sources[0].view = view;
    }
    if (!HasFewRows(problem, item)) sources.back().gathered = true;
  }
  for (SourceTensor& source : sources) {
    if (source.gathered) source.padded_length = RoundUp(source.view.shape[1], kKeyStep);
  }
  return sources;
}

GatheredRows::GatheredRows(const AttentionProblem& problem, TensorView AttentionItem::*which,
                           RowForm form)
    : form_(form),
      heads_(problem.kv_heads()),
      shared_(ItemsShare(problem, which)),
      sources_(Sources(problem, which)) {
  for (SourceTensor& source : sources_) {
    source.first_row = total_rows_;
    dim_ = source.view.shape[2];
    total_rows_ += heads_ * source.padded_length;
    const auto index = &source - sources_.data();
    for (std::int64_t head = 0; head < heads_; ++head) {
      for (std::int64_t begin = 0; begin < source.padded_length; begin += kRowsPerUnit) {
        units_.push_back({index, head, begin});
      }
    }
  }
  padded_dim_ = RoundUp(dim_, kDimStep);
}

// Without the sources themselves, since each request is asked for it before it is admitted.
std::int64_t GatheredRows::BytesNeeded(const AttentionProblem& problem,
                                       TensorView AttentionItem::*which) {
  std::int64_t sum = 0;
  std::int64_t longest = 0;
  for (const AttentionItem& item : problem.items()) {
    const TensorView& view = item.*which;
    const std::int64_t length = RoundUp(view.shape[1], kKeyStep);
    const std::int64_t row_bytes =
        RoundUp(view.shape[2], kDimStep) * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t unit_bytes =
        RoundUp(length, kRowsPerUnit) / kRowsPerUnit * static_cast<std::int64_t>(sizeof(Unit));
    const std::int64_t bytes = problem.kv_heads() * (length * row_bytes + unit_bytes);
    if (!HasFewRows(problem, item)) sum += bytes;
    longest = std::max(longest, bytes);
  }
  return sum > 0 && ItemsShare(problem, which) ? longest : sum;
}

bool GatheredRows::Allocate(BufferPool& memory) {
  try {
    non_finite_.assign(total_rows_ / kKeyStep, 0);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (num_floats() == 0) return true;  // of few rows nothing is gathered
  buffer_ = memory.Acquire(num_floats() * static_cast<std::int64_t>(sizeof(float)));
  return buffer_.ok();
}

void GatheredRows::RunUnit(std::int64_t unit, float* block) {
  const auto [source_index, head, begin] = units_[unit];
  const SourceTensor& source = sources_[source_index];
  const std::int64_t end = std::min(begin + kRowsPerUnit, source.padded_length);
  for (std::int64_t row = begin; row < end; row += kRowBlock) {
    float* const target = RowAt(RowIndex(source, head, row));
    if (PackInPlace(source, head, row, target)) continue;
    for (std::int64_t i = 0; i < kRowBlock; ++i) {
      GatherRow(source, head, row + i, block + i * padded_dim_);
    }
    PackRows(form_, padded_dim_, padded_dim_, block, target);
  }
}

// Packs a block of rows from where they lie, if they can be read there and are finite.
bool GatheredRows::PackInPlace(const SourceTensor& source, std::int64_t head, std::int64_t row,
                               float* target) const {
  const TensorView& view = source.view;
  if (view.dtype != DType::kFloat32 || view.strides[2] != 1 || dim_ != padded_dim_ ||
      row + kRowBlock > view.shape[1]) {
    return false;
  }
  const std::byte* first = view.at(head * view.strides[0] + row * view.strides[1]);
  if (reinterpret_cast<std::uintptr_t>(first) % alignof(float) != 0) return false;
  return PackRows(form_, padded_dim_, view.strides[1], reinterpret_cast<const float*>(first),
                  target);
}

// One row, dense.
void GatheredRows::GatherRow(const SourceTensor& source, std::int64_t head, std::int64_t row,
                             float* target) {
  const std::int64_t filled = row < source.view.shape[1] ? dim_ : 0;
  std::fill(target + filled, target + padded_dim_, 0.0f);
  if (filled > 0 && !LoadStridedRow(source.view, head, row, dim_, target)) {
    ZeroNonFinite(target, dim_);
    non_finite_[RowIndex(source, head, row) / kKeyStep] = 1;
  }
}

const float* GatheredRows::Rows(std::int64_t item, std::int64_t head, std::int64_t begin) const {
  return RowAt(RowIndex(SourceOf(item), head, begin));
}

bool GatheredRows::AnyNonFinite(std::int64_t item, std::int64_t head, std::int64_t begin,
                                std::int64_t count) const {
  const std::int64_t first = RowIndex(SourceOf(item), head, begin);
  return std::any_of(non_finite_.begin() + first / kKeyStep,
                     non_finite_.begin() + RoundUp(first + count, kKeyStep) / kKeyStep,
                     [](std::uint8_t flag) { return flag != 0; });
}

SourceRows GatheredRows::Source(std::int64_t item, std::int64_t head, std::int64_t begin,
                                std::int64_t count) const {
  const TensorView& view = SourceOf(item).view;
  if (view.strides[2] != 1 || dim_ != padded_dim_) return {};
  return {.data = view.at(head * view.strides[0] + begin * view.strides[1]),
          .stride = view.strides[1] * static_cast<std::int64_t>(SizeOf(view.dtype)),
          .count = count,
          .dtype = view.dtype};
}

void GatheredRows::LoadOriginal(std::int64_t item, std::int64_t head, std::int64_t row,
                                float* target) const {
  const SourceTensor& source = SourceOf(item);
  std::fill(target + dim_, target + padded_dim_, 0.0f);
  LoadStridedRow(source.view, head, row, dim_, target);
}

}  // namespace attend

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/attention_problem_builder.h"
#include "core/base/field_checks.h"
#include "core/base/mask_view.h"
#include "core/base/status.h"

namespace attend {

namespace {

// Bounds offsets and windows so that position arithmetic cannot overflow. Far beyond any length.
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 40;

// Blocks of a block mask that a request may have in all.
constexpr std::int64_t kMaxMaskBlocks = std::int64_t{1} << 24;

absl::Status CheckBlockSize(const std::string& field, std::int64_t size) {
  if (size > 0 && size % 64 == 0) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", size, "; expected a positive multiple of 64"));
}

}  // namespace

absl::Status AttentionProblemBuilder::CheckScalars() {
  const AttentionOptions& options = args_.options;
  problem_.scale_ = options.scale.value_or(
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem_.head_dim_))));
  problem_.softcap_ = options.softcap;
  problem_.causal_ = options.causal;
  if (!std::isfinite(problem_.scale_)) {
    return InvalidField("options.scale",
                        absl::StrCat("is ", problem_.scale_, "; expected a finite number"));
  }
  if (!std::isfinite(options.softcap) || options.softcap < 0) {
    return InvalidField("options.softcap",
                        absl::StrCat("is ", options.softcap, "; expected a finite number >= 0"));
  }
  return absl::OkStatus();
}

absl::Status AttentionProblemBuilder::CheckPositions() {
  const AttentionOptions& options = args_.options;
  for (const auto& [field, window, target] :
       {std::tuple{"options.window_left", options.window_left, &problem_.window_left_},
        std::tuple{"options.window_right", options.window_right, &problem_.window_right_}}) {
    if (!window.has_value()) continue;
    absl::Status status = CheckRange(field, *window, 0, std::numeric_limits<std::int64_t>::max());
    if (!status.ok()) return status;
    *target = std::min(*window, 4 * kMaxPosition);  // beyond any key: the same meaning
  }
  return CheckOffsets();
}

absl::Status AttentionProblemBuilder::CheckOffsets() {
  const std::vector<std::int64_t>& offsets = args_.options.query_offsets;
  const std::int64_t batch = problem_.batch();
  const auto count = static_cast<std::int64_t>(offsets.size());
  const bool given = args_.options.alignment == Alignment::kOffsets;
  if (!given && count != 0) {
    return InvalidField("options.query_offsets",
                        absl::StrCat("has ", count, " values; expected none unless ",
                                     "options.alignment is OFFSETS"));
  }
  if (given && count != 1 && count != batch) {
    return InvalidField("options.query_offsets",
                        absl::StrCat("has ", count, " values; expected 1",
                                     batch == 1 ? "" : absl::StrCat(" or ", batch)));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    absl::Status status = CheckRange(Indexed("options.query_offsets", "", i), offsets[i],
                                     -kMaxPosition, kMaxPosition);
    if (!status.ok()) return status;
  }
  for (std::int64_t b = 0; b < batch; ++b) {
    AttentionItem& item = problem_.items_[b];
    if (given) item.offset = offsets[count == 1 ? 0 : b];
    if (args_.options.alignment == Alignment::kLast) item.offset = item.kv_len - item.query_len;
  }
  return absl::OkStatus();
}

absl::Status AttentionProblemBuilder::CheckSlopes() {
  if (!args_.options.alibi_slopes.has_value()) return absl::OkStatus();
  const std::string field = "options.alibi_slopes";
  const Dims shapes[] = {{problem_.query_heads_}, {problem_.batch(), problem_.query_heads_}};
  absl::StatusOr<std::vector<float>> slopes =
      ReadFloats(*args_.options.alibi_slopes, field, shapes,
                 absl::StrCat(ShapeString(shapes[0]), " or ", ShapeString(shapes[1])));
  if (!slopes.ok()) return slopes.status();
  for (std::size_t i = 0; i < slopes->size(); ++i) {
    if (std::isfinite((*slopes)[i])) continue;
    return InvalidField(Indexed(field, ".data", static_cast<std::int64_t>(i)),
                        absl::StrCat("is ", (*slopes)[i], "; expected a finite number"));
  }
  problem_.alibi_slopes_ = *std::move(slopes);
  return absl::OkStatus();
}

absl::Status AttentionProblemBuilder::CheckSinks() {
  if (!args_.options.sinks.has_value()) return absl::OkStatus();
  absl::StatusOr<std::vector<float>> sinks =
      ReadSinks(*args_.options.sinks, "options.sinks", problem_.query_heads_);
  if (!sinks.ok()) return sinks.status();
  problem_.sinks_ = *std::move(sinks);
  return absl::OkStatus();
}

Dims AttentionProblemBuilder::MaskTarget(std::int64_t rows, std::int64_t columns) const {
  if (packed()) return {1, problem_.query_heads_, 1, 1};
  return {problem_.batch(), problem_.query_heads_, rows, columns};
}

absl::Status AttentionProblemBuilder::CheckMasks() {
  const Dims target = MaskTarget(problem_.query_len_, problem_.kv_len_);
  if (args_.boolean_mask.has_value()) {
    absl::StatusOr<BroadcastView> view =
        BroadcastBooleanMask(*args_.boolean_mask, target, "boolean_mask");
    if (!view.ok()) return view.status();
    problem_.boolean_mask_ = *view;
  }
  if (args_.additive_mask.has_value()) {
    absl::StatusOr<BroadcastView> view =
        BroadcastAdditiveMask(*args_.additive_mask, target, "additive_mask");
    if (!view.ok()) return view.status();
    problem_.additive_mask_ = *view;
  }
  return absl::OkStatus();
}

absl::Status AttentionProblemBuilder::CheckBlocks() {
  if (!args_.options.block_mask.has_value()) return absl::OkStatus();
  const BlockMask& mask = *args_.options.block_mask;
  const std::string field = "options.block_mask";
  absl::Status status = CheckBlockSize(field + ".query_block_size", mask.query_block_size);
  if (status.ok()) status = CheckBlockSize(field + ".key_block_size", mask.key_block_size);
  if (!status.ok()) return status;
  const auto blocks = [](std::int64_t length, std::int64_t size) {
    return length / size + (length % size != 0 ? 1 : 0);
  };
  absl::StatusOr<BroadcastView> view =
      BroadcastBooleanMask(mask.blocks,
                           MaskTarget(blocks(problem_.query_len_, mask.query_block_size),
                                      blocks(problem_.kv_len_, mask.key_block_size)),
                           field + ".blocks");
  if (!view.ok()) return view.status();
  problem_.block_mask_ = BlockMaskView{mask.query_block_size, mask.key_block_size, *view};
  return CheckBlockCount(field + ".blocks");
}

// Blocks are counted one by one before the request is admitted, also where the mask itself is
// small because axes of it are broadcast.
absl::Status AttentionProblemBuilder::CheckBlockCount(const std::string& field) const {
  const BlockMaskView& mask = *problem_.block_mask_;
  const auto blocks = [&](int axis, std::int64_t length, std::int64_t size) {
    return mask.blocks.strides[axis] == 0 ? 1.0 : std::ceil(static_cast<double>(length) / size);
  };
  const double heads =
      mask.blocks.strides[1] == 0 ? 1.0 : static_cast<double>(problem_.query_heads_);
  const double count = static_cast<double>(problem_.batch()) * heads *
                       blocks(2, problem_.query_len_, mask.query_block_size) *
                       blocks(3, problem_.kv_len_, mask.key_block_size);
  if (count <= static_cast<double>(kMaxMaskBlocks)) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("tells ", count,
                                          " blocks apart over batch, heads and "
                                          "lengths; expected at most ",
                                          kMaxMaskBlocks, ": use larger blocks"));
}

}  // namespace attend

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/attention_problem.h"
#include "core/base/mask_view.h"
#include "core/base/pair_count.h"
#include "core/base/status.h"

namespace attend {

namespace {

constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
// Bounds offsets and windows so that position arithmetic cannot overflow. Far beyond any length.
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 40;

// Blocks of a block mask that a request may have in all.
constexpr std::int64_t kMaxMaskBlocks = std::int64_t{1} << 24;

// Indices of the axes of query, key and value in a layout. kPacked has no batch axis.
struct Axes {
  int batch;
  int heads;
  int length;
  int dim;
  int rank;
};

constexpr Axes AxesOf(Layout layout) {
  switch (layout) {
    case Layout::kBatchHeadsLength:
      return {0, 1, 2, 3, 4};
    case Layout::kBatchLengthHeads:
      return {0, 2, 1, 3, 4};
    case Layout::kPacked:
      return {-1, 1, 0, 2, 3};
  }
  return {0, 1, 2, 3, 4};
}

std::string Indexed(absl::string_view field, absl::string_view list, std::int64_t index) {
  return absl::StrCat(field, list, "[", index, "]");
}

std::string DimField(absl::string_view field, int axis) { return Indexed(field, ".shape", axis); }

absl::Status CheckRange(const std::string& field, std::int64_t value, std::int64_t low,
                        std::int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidField(field,
                      absl::StrCat("is ", value, "; expected a value from ", low, " to ", high));
}

absl::Status CheckEqual(const std::string& field, std::int64_t value, std::int64_t expected,
                        absl::string_view what) {
  if (value == expected) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; expected ", expected, " (", what, ")"));
}

// The view of one item: [heads, length, dim] of a tensor in any layout.
TensorView ItemView(const TensorView& tensor, const Axes& axes, std::int64_t first,
                    std::int64_t length) {
  const int outer = axes.batch >= 0 ? axes.batch : axes.length;
  TensorView view;
  view.dtype = tensor.dtype;
  view.shape = {tensor.shape[axes.heads], length, tensor.shape[axes.dim]};
  view.strides = {tensor.strides[axes.heads], tensor.strides[axes.length],
                  tensor.strides[axes.dim]};
  view.data = tensor.num_elements() == 0 ? tensor.data : tensor.at(first * tensor.strides[outer]);
  return view;
}

}  // namespace

// Checks the arguments in the order that makes the clearest first complaint, and fills the problem.
class AttentionProblemBuilder {
 public:
  AttentionProblemBuilder(const AttentionArgs& args, const AttentionLimits& limits)
      : args_(args), limits_(limits), axes_(AxesOf(args.layout)) {}

  absl::StatusOr<AttentionProblem> Build() {
    using Step = absl::Status (AttentionProblemBuilder::*)();
    for (const Step step :
         {&AttentionProblemBuilder::CheckTensors, &AttentionProblemBuilder::CheckHeads,
          &AttentionProblemBuilder::CheckLengths, &AttentionProblemBuilder::CheckScalars,
          &AttentionProblemBuilder::CheckPositions, &AttentionProblemBuilder::CheckSlopes,
          &AttentionProblemBuilder::CheckSinks, &AttentionProblemBuilder::CheckMasks,
          &AttentionProblemBuilder::CheckBlocks, &AttentionProblemBuilder::CheckOutput,
          &AttentionProblemBuilder::CountPairs}) {
      absl::Status status = (this->*step)();
      if (!status.ok()) return status;
    }
    return std::move(problem_);
  }

 private:
  bool packed() const { return args_.layout == Layout::kPacked; }

  absl::Status CheckTensor(const TensorView& tensor, absl::string_view field,
                           std::int64_t max_dim) {
    if (tensor.rank() != axes_.rank) {
      return InvalidField(absl::StrCat(field, ".shape"),
                          absl::StrCat("is ", ShapeString(tensor.shape), "; expected ", axes_.rank,
                                       " sizes in this layout"));
    }
    const absl::StatusOr<std::int64_t> count = CheckedElementCount(tensor.shape, field);
    if (!count.ok()) return count.status();
    if (!IsFloat(tensor.dtype)) {
      return InvalidField(
          absl::StrCat(field, ".dtype"),
          absl::StrCat("is ", Name(tensor.dtype), "; expected FLOAT32, BFLOAT16 or FLOAT16"));
    }
    if (tensor.dtype != args_.query.dtype) {
      return InvalidField(absl::StrCat(field, ".dtype"),
                          absl::StrCat("is ", Name(tensor.dtype), "; expected query's dtype, ",
                                       Name(args_.query.dtype)));
    }
    absl::Status status =
        CheckRange(DimField(field, axes_.dim), tensor.shape[axes_.dim], 1, max_dim);
    if (!status.ok()) return status;
    return CheckRange(DimField(field, axes_.heads), tensor.shape[axes_.heads], 1,
                      limits_.max_heads);
  }

  absl::Status CheckTensors() {
    absl::Status status = CheckTensor(args_.query, "query", limits_.max_head_dim);
    if (status.ok()) status = CheckTensor(args_.key, "key", limits_.max_head_dim);
    if (status.ok()) status = CheckTensor(args_.value, "value", limits_.max_value_dim);
    if (!status.ok()) return status;
    problem_.dtype_ = args_.query.dtype;
    problem_.layout_ = args_.layout;
    problem_.query_heads_ = args_.query.shape[axes_.heads];
    problem_.kv_heads_ = args_.key.shape[axes_.heads];
    problem_.head_dim_ = args_.query.shape[axes_.dim];
    problem_.value_dim_ = args_.value.shape[axes_.dim];
    return absl::OkStatus();
  }

  absl::Status CheckHeads() {
    absl::Status status = CheckEqual(DimField("key", axes_.dim), args_.key.shape[axes_.dim],
                                     problem_.head_dim_, "query's head_dim");
    if (status.ok()) {
      status = CheckEqual(DimField("value", axes_.heads), args_.value.shape[axes_.heads],
                          problem_.kv_heads_, "key's kv_heads");
    }
    if (status.ok()) {
      status =
          CheckEqual(DimField("value", axes_.length), args_.value.shape[axes_.length],
                     args_.key.shape[axes_.length], packed() ? "key's tokens" : "key's kv_len");
    }
    if (!status.ok()) return status;
    if (problem_.query_heads_ % problem_.kv_heads_ != 0) {
      return InvalidField(
          DimField("query", axes_.heads),
          absl::StrCat("is ", problem_.query_heads_, "; expected a multiple of key's kv_heads, ",
                       problem_.kv_heads_));
    }
    return absl::OkStatus();
  }

  absl::Status CheckLengths() { return packed() ? PackedItems() : PaddedItems(); }

  absl::Status CheckBatch(const TensorView& tensor, absl::string_view field,
                          std::int64_t batch) const {
    const std::int64_t size = tensor.shape[axes_.batch];
    if (size == batch || size == 1) return absl::OkStatus();
    return InvalidField(
        DimField(field, axes_.batch),
        absl::StrCat("is ", size, "; expected query's batch, ", batch, ", or 1 to share"));
  }

  // Checks a list of lengths of a padded layout: empty, or one for each item.
  absl::Status CheckLengthList(absl::string_view field, const std::vector<std::int64_t>& lengths,
                               std::int64_t batch, std::int64_t padded) const {
    if (lengths.empty()) return absl::OkStatus();
    absl::Status status =
        CheckEqual(absl::StrCat(field, ".size"), static_cast<std::int64_t>(lengths.size()), batch,
                   "one for each item");
    for (std::int64_t i = 0; status.ok() && i < batch; ++i) {
      status = CheckRange(Indexed(field, "", i), lengths[i], 0, padded);
    }
    return status;
  }

  absl::Status PaddedItems() {
    const std::int64_t batch = args_.query.shape[axes_.batch];
    problem_.query_len_ = args_.query.shape[axes_.length];
    problem_.kv_len_ = args_.key.shape[axes_.length];
    absl::Status status = CheckRange(DimField("query", axes_.batch), batch, 0, limits_.max_batch);
    if (status.ok()) status = CheckBatch(args_.key, "key", batch);
    if (status.ok()) status = CheckBatch(args_.value, "value", batch);
    if (status.ok()) {
      status =
          CheckRange(DimField("query", axes_.length), problem_.query_len_, 0, limits_.max_length);
    }
    if (status.ok()) {
      status = CheckRange(DimField("key", axes_.length), problem_.kv_len_, 0, limits_.max_length);
    }
    if (status.ok()) {
      status = CheckLengthList("query_lengths", args_.query_lengths, batch, problem_.query_len_);
    }
    if (status.ok()) {
      status = CheckLengthList("kv_lengths", args_.kv_lengths, batch, problem_.kv_len_);
    }
    if (!status.ok()) return status;
    for (std::int64_t b = 0; b < batch; ++b) {
      AddItem(args_.query_lengths.empty() ? problem_.query_len_ : args_.query_lengths[b],
              args_.kv_lengths.empty() ? problem_.kv_len_ : args_.kv_lengths[b], b,
              args_.key.shape[axes_.batch] == 1 ? 0 : b,
              args_.value.shape[axes_.batch] == 1 ? 0 : b);
    }
    return absl::OkStatus();
  }

  // Checks a list of lengths of the packed layout: required, summing to the tokens.
  absl::Status CheckPackedList(absl::string_view field, const std::vector<std::int64_t>& lengths,
                               std::int64_t tokens) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::int64_t index = static_cast<std::int64_t>(i);
      absl::Status status =
          CheckRange(Indexed(field, "", index), lengths[i], 0, limits_.max_length);
      if (!status.ok()) return status;
      sum += lengths[i];  // at most max_batch * max_length: cannot overflow
    }
    if (sum == tokens) return absl::OkStatus();
    return InvalidField(field,
                        absl::StrCat("sums to ", sum, "; expected ", tokens, ", the tokens"));
  }

  absl::Status PackedItems() {
    const auto batch = static_cast<std::int64_t>(args_.query_lengths.size());
    problem_.query_tokens_ = args_.query.shape[axes_.length];
    absl::Status status = CheckRange("query_lengths.size", batch, 0, limits_.max_batch);
    if (status.ok()) {
      status = CheckEqual("kv_lengths.size", static_cast<std::int64_t>(args_.kv_lengths.size()),
                          batch, "as many as query_lengths");
    }
    if (status.ok()) {
      status = CheckPackedList("query_lengths", args_.query_lengths, problem_.query_tokens_);
    }
    if (status.ok()) {
      status = CheckPackedList("kv_lengths", args_.kv_lengths, args_.key.shape[axes_.length]);
    }
    if (!status.ok()) return status;
    std::int64_t query_token = 0;
    std::int64_t kv_token = 0;
    for (std::int64_t b = 0; b < batch; ++b) {
      AddItem(args_.query_lengths[b], args_.kv_lengths[b], query_token, kv_token, kv_token);
      problem_.items_.back().first_token = query_token;
      query_token += args_.query_lengths[b];
      kv_token += args_.kv_lengths[b];
      problem_.query_len_ = std::max(problem_.query_len_, args_.query_lengths[b]);
      problem_.kv_len_ = std::max(problem_.kv_len_, args_.kv_lengths[b]);
    }
    return absl::OkStatus();
  }

  void AddItem(std::int64_t query_len, std::int64_t kv_len, std::int64_t query_first,
               std::int64_t key_first, std::int64_t value_first) {
    AttentionItem& item = problem_.items_.emplace_back();
    item.query_len = query_len;
    item.kv_len = kv_len;
    item.query = ItemView(args_.query, axes_, query_first, query_len);
    item.key = ItemView(args_.key, axes_, key_first, kv_len);
    item.value = ItemView(args_.value, axes_, value_first, kv_len);
  }

  absl::Status CheckScalars() {
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

  absl::Status CheckPositions() {
    const AttentionOptions& options = args_.options;
    for (const auto& [field, window, target] :
         {std::tuple{"options.window_left", options.window_left, &problem_.window_left_},
          std::tuple{"options.window_right", options.window_right, &problem_.window_right_}}) {
      if (!window.has_value()) continue;
      absl::Status status = CheckRange(field, *window, 0, kMaxInt64);
      if (!status.ok()) return status;
      *target = std::min(*window, 4 * kMaxPosition);  // beyond any key: the same meaning
    }
    return CheckOffsets();
  }

  absl::Status CheckOffsets() {
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
                          absl::StrCat("has ", count, " values; expected 1 or ", batch));
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

  // Reads a FLOAT32 tensor of the options whose shape is one of those given.
  absl::StatusOr<std::vector<float>> ReadFloats(const TensorView& tensor, absl::string_view field,
                                                std::span<const Dims> shapes,
                                                absl::string_view expected) {
    if (tensor.dtype != DType::kFloat32) {
      return InvalidField(absl::StrCat(field, ".dtype"),
                          absl::StrCat("is ", Name(tensor.dtype), "; expected FLOAT32"));
    }
    if (std::find(shapes.begin(), shapes.end(), tensor.shape) == shapes.end()) {
      return InvalidField(absl::StrCat(field, ".shape"),
                          absl::StrCat("is ", ShapeString(tensor.shape), "; expected ", expected));
    }
    const std::int64_t columns = tensor.shape.back();
    std::vector<float> values;
    values.reserve(tensor.num_elements());
    for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
      const std::int64_t row_stride = tensor.rank() == 2 ? tensor.strides[0] : 0;
      const std::int64_t offset =
          (i / columns) * row_stride + (i % columns) * tensor.strides.back();
      values.push_back(LoadUnaligned<float>(tensor.at(offset)));
    }
    return values;
  }

  absl::Status CheckSlopes() {
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

  absl::Status CheckSinks() {
    if (!args_.options.sinks.has_value()) return absl::OkStatus();
    const std::string field = "options.sinks";
    const Dims shapes[] = {{problem_.query_heads_}};
    absl::StatusOr<std::vector<float>> sinks =
        ReadFloats(*args_.options.sinks, field, shapes, ShapeString(shapes[0]));
    if (!sinks.ok()) return sinks.status();
    for (std::size_t i = 0; i < sinks->size(); ++i) {
      const float sink = (*sinks)[i];
      if (!std::isnan(sink) && sink < std::numeric_limits<float>::infinity()) continue;
      return InvalidField(Indexed(field, ".data", static_cast<std::int64_t>(i)),
                          absl::StrCat("is ", sink, "; expected a number or -inf"));
    }
    problem_.sinks_ = *std::move(sinks);
    return absl::OkStatus();
  }

  // The shape that masks broadcast to. With packed tokens only the heads may differ.
  Dims MaskTarget(std::int64_t rows, std::int64_t columns) const {
    if (packed()) return {1, problem_.query_heads_, 1, 1};
    return {problem_.batch(), problem_.query_heads_, rows, columns};
  }

  absl::Status CheckMasks() {
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

  absl::Status CheckBlockSize(const std::string& field, std::int64_t size) const {
    if (size > 0 && size % 64 == 0) return absl::OkStatus();
    return InvalidField(field, absl::StrCat("is ", size, "; expected a positive multiple of 64"));
  }

  absl::Status CheckBlocks() {
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
  absl::Status CheckBlockCount(const std::string& field) const {
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

  absl::Status CheckOutput() {
    problem_.output_ = args_.output;
    if (args_.output.dtype.has_value() && !IsFloat(*args_.output.dtype)) {
      return InvalidField("output.dtype", absl::StrCat("is ", Name(*args_.output.dtype),
                                                       "; expected FLOAT32, BFLOAT16 or FLOAT16"));
    }
    absl::StatusOr<std::int64_t> count = CheckedElementCount(problem_.output_shape(), "output");
    if (!count.ok()) return count.status();
    if (!args_.output.weights && args_.output.scores == ScoreStage::kNone) return absl::OkStatus();
    const std::string field = args_.output.weights ? "output.weights" : "output.scores";
    count = CheckedElementCount(problem_.score_shape(), field);
    if (!count.ok()) return count.status();
    if (*count <= limits_.max_score_elements) return absl::OkStatus();
    return InvalidField(field, absl::StrCat("would have ", *count, " elements; expected at most ",
                                            limits_.max_score_elements));
  }

  absl::Status CountPairs() {
    const std::optional<std::int64_t> count = CountDotProducts(problem_);
    if (!count.has_value()) {
      return InvalidField("query.shape",
                          absl::StrCat("is ", ShapeString(args_.query.shape), "; expected at most ",
                                       kMaxInt64, " query-key pairs"));
    }
    problem_.dot_products_ = *count;
    return absl::OkStatus();
  }

  const AttentionArgs& args_;
  const AttentionLimits& limits_;
  const Axes axes_;
  AttentionProblem problem_;
};

absl::StatusOr<AttentionProblem> AttentionProblem::Create(const AttentionArgs& args,
                                                          const AttentionLimits& limits) {
  return AttentionProblemBuilder(args, limits).Build();
}

}  // namespace attend

#include "client/cpp/request.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend::client_internal {

namespace {

struct NamedView {
  const TensorView* view;
  absl::string_view field;
  v1::Tensor* message;
  std::int64_t bytes = 0;
};

v1::DataType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return v1::DATA_TYPE_FLOAT32;
    case DType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
    case DType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case DType::kBool:
      return v1::DATA_TYPE_BOOL;
    case DType::kInt8:
      return v1::DATA_TYPE_INT8;
    case DType::kInt64:
      return v1::DATA_TYPE_INT64;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

v1::Layout ToProto(Layout layout) {
  switch (layout) {
    case Layout::kBatchHeadsLength:
      return v1::LAYOUT_BATCH_HEADS_LENGTH;
    case Layout::kBatchLengthHeads:
      return v1::LAYOUT_BATCH_LENGTH_HEADS;
    case Layout::kPacked:
      return v1::LAYOUT_PACKED;
  }
  return v1::LAYOUT_UNSPECIFIED;
}

v1::Alignment ToProto(Alignment alignment) {
  switch (alignment) {
    case Alignment::kFirst:
      return v1::ALIGNMENT_FIRST;
    case Alignment::kLast:
      return v1::ALIGNMENT_LAST;
    case Alignment::kOffsets:
      return v1::ALIGNMENT_OFFSETS;
  }
  return v1::ALIGNMENT_UNSPECIFIED;
}

v1::ScoreStage ToProto(ScoreStage stage) {
  switch (stage) {
    case ScoreStage::kNone:
      return v1::SCORE_STAGE_UNSPECIFIED;
    case ScoreStage::kScaled:
      return v1::SCORE_STAGE_SCALED;
    case ScoreStage::kCapped:
      return v1::SCORE_STAGE_CAPPED;
    case ScoreStage::kBiased:
      return v1::SCORE_STAGE_BIASED;
  }
  return v1::SCORE_STAGE_UNSPECIFIED;
}

v1::Priority ToProto(CallPriority priority) {
  switch (priority) {
    case CallPriority::kNormal:
      // Left open, so that metadata given with the call can still say otherwise.
      return v1::PRIORITY_UNSPECIFIED;
    case CallPriority::kHigh:
      return v1::PRIORITY_HIGH;
    case CallPriority::kLow:
      return v1::PRIORITY_LOW;
  }
  return v1::PRIORITY_UNSPECIFIED;
}

absl::StatusOr<std::int64_t> CheckedBytes(const NamedView& named) {
  const TensorView& view = *named.view;
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(view.shape, named.field);
  if (!count.ok()) return count.status();
  if (view.strides.size() != view.shape.size()) {
    return InvalidField(absl::StrCat(named.field, ".strides"),
                        absl::StrCat("are ", ShapeString(view.strides),
                                     "; expected one for each of ", ShapeString(view.shape)));
  }
  if (view.data == nullptr && *count > 0) {
    return InvalidField(named.field, absl::StrCat("is missing: ", ShapeString(view.shape),
                                                  " elements at a null pointer"));
  }
  return *count * static_cast<std::int64_t>(SizeOf(view.dtype));
}

// Copies the elements of `view` below axis `axis`, row-major, and returns the end of what it wrote.
char* CopyElements(const TensorView& view, std::size_t axis, const std::byte* source,
                   char* target) {
  const std::size_t size = SizeOf(view.dtype);
  if (axis == view.shape.size()) {
    std::memcpy(target, source, size);
    return target + size;
  }
  const std::int64_t count = view.shape[axis];
  const bool contiguous = axis + 1 == view.shape.size() && view.strides[axis] == 1;
  if (contiguous) {
    const std::size_t bytes = static_cast<std::size_t>(count) * size;
    std::memcpy(target, source, bytes);
    return target + bytes;
  }
  const std::int64_t step = view.strides[axis] * static_cast<std::int64_t>(size);
  for (std::int64_t i = 0; i < count; ++i) {
    target = CopyElements(view, axis + 1, source + i * step, target);
  }
  return target;
}

void CopyDense(const TensorView& view, std::int64_t bytes, char* target) {
  if (view.strides == DenseStrides(view.shape)) {
    std::memcpy(target, view.data, static_cast<std::size_t>(bytes));
  } else {
    CopyElements(view, 0, view.data, target);
  }
}

void FillType(const TensorView& view, v1::Tensor* message) {
  message->set_dtype(ToProto(view.dtype));
  message->mutable_shape()->Add(view.shape.begin(), view.shape.end());
}

void FillData(const NamedView& named) {
  const TensorView& view = *named.view;
  if (named.bytes == 0) return;
  std::string* data = named.message->mutable_data();
  if (view.strides == DenseStrides(view.shape)) {
    data->assign(reinterpret_cast<const char*>(view.data), static_cast<std::size_t>(named.bytes));
    return;
  }
  data->resize(static_cast<std::size_t>(named.bytes));
  CopyDense(view, named.bytes, data->data());
}

bool IsShared(std::int64_t bytes) { return bytes >= kLeastSharedBytes; }

std::uint64_t RoomFor(std::int64_t bytes) {
  constexpr std::uint64_t kMask = SliceAllocator::kAlignment - 1;
  return IsShared(bytes) ? (static_cast<std::uint64_t>(bytes) + kMask) & ~kMask : 0;
}

// Gives out the parts of a slice, one behind the other.
class SlicePlaces {
 public:
  explicit SlicePlaces(const SharedSlice& slice) : slice_(slice) {}

  // Where `bytes` go, which `message` then says.
  char* Place(std::int64_t bytes, v1::SharedMemorySlice* message) {
    message->set_offset(slice_.offset() + next_);
    message->set_size_bytes(static_cast<std::uint64_t>(bytes));
    char* place = reinterpret_cast<char*>(slice_.data() + next_);
    next_ += RoomFor(bytes);
    return place;
  }

 private:
  const SharedSlice& slice_;
  std::uint64_t next_ = 0;
};

// How much of a slice the request would use; kTooMuch where it is more than any memory has, before
// a sum could wrap around.
constexpr std::uint64_t kTooMuch = std::uint64_t{1} << 60;

std::uint64_t RoomFor(const std::vector<NamedView>& views, const ResultBytes& results) {
  std::uint64_t room = 0;
  const auto add = [&room](std::int64_t bytes) {
    room = std::min(kTooMuch, room + RoomFor(bytes));
  };
  for (const NamedView& named : views) add(named.bytes);
  for (const std::int64_t bytes : {results.output, results.lse, results.weights, results.scores}) {
    add(bytes);
  }
  return room;
}

void PlaceResults(const ResultBytes& results, v1::OutputOptions* output, SlicePlaces* places) {
  if (IsShared(results.output)) places->Place(results.output, output->mutable_output_target());
  if (IsShared(results.lse)) places->Place(results.lse, output->mutable_lse_target());
  if (IsShared(results.weights)) places->Place(results.weights, output->mutable_weights_target());
  if (IsShared(results.scores)) places->Place(results.scores, output->mutable_scores_target());
}

// The bytes of a shape; 0 for one that makes no sense.
std::int64_t BytesOf(const Dims& shape, DType dtype) {
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(shape, "shape");
  return count.ok() ? *count * static_cast<std::int64_t>(SizeOf(dtype)) : 0;
}

// [batch, query_heads, query_len, kv_len]; of packed tokens the longest item's lengths.
Dims ScoreShape(const AttentionArgs& args) {
  const Dims& query = args.query.shape;
  const Dims& key = args.key.shape;
  if (args.layout == Layout::kPacked) {
    const auto longest = [](const auto& lengths) {
      return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    };
    return {static_cast<std::int64_t>(args.query_lengths.size()), query[1],
            longest(args.query_lengths), longest(args.kv_lengths)};
  }
  if (args.layout == Layout::kBatchLengthHeads) return {query[0], query[2], query[1], key[1]};
  return {query[0], query[1], query[2], key[2]};
}

// Every tensor of the request with its place in the message.
std::vector<NamedView> ListTensors(const AttentionArgs& args, v1::AttendRequest* request) {
  std::vector<NamedView> views = {{&args.query, "query", request->mutable_query()},
                                  {&args.key, "key", request->mutable_key()},
                                  {&args.value, "value", request->mutable_value()}};
  const AttentionOptions& options = args.options;
  v1::AttentionOptions* message = request->mutable_options();
  if (args.boolean_mask.has_value()) {
    views.push_back({&*args.boolean_mask, "boolean_mask", request->mutable_boolean_mask()});
  }
  if (args.additive_mask.has_value()) {
    views.push_back({&*args.additive_mask, "additive_mask", request->mutable_additive_mask()});
  }
  if (options.alibi_slopes.has_value()) {
    views.push_back(
        {&*options.alibi_slopes, "options.alibi_slopes", message->mutable_alibi_slopes()});
  }
  if (options.sinks.has_value()) {
    views.push_back({&*options.sinks, "options.sinks", message->mutable_sinks()});
  }
  if (options.block_mask.has_value()) {
    v1::BlockMask* mask = message->mutable_block_mask();
    mask->set_query_block_size(options.block_mask->query_block_size);
    mask->set_key_block_size(options.block_mask->key_block_size);
    views.push_back(
        {&options.block_mask->blocks, "options.block_mask.blocks", mask->mutable_blocks()});
  }
  return views;
}

void FillOptions(const AttentionOptions& options, v1::AttentionOptions* message) {
  if (options.scale.has_value()) message->set_scale(*options.scale);
  message->set_softcap(options.softcap);
  message->set_causal(options.causal);
  message->set_alignment(ToProto(options.alignment));
  message->mutable_query_offsets()->Add(options.query_offsets.begin(), options.query_offsets.end());
  if (options.window_left.has_value()) message->set_window_left(*options.window_left);
  if (options.window_right.has_value()) message->set_window_right(*options.window_right);
}

void FillOutput(const OutputOptions& output, v1::OutputOptions* message) {
  if (output.dtype.has_value()) message->set_dtype(ToProto(*output.dtype));
  message->set_lse(output.lse);
  message->set_weights(output.weights);
  message->set_scores(ToProto(output.scores));
}

// Into the slice what goes there, the rest into the message.
void FillShared(const std::vector<NamedView>& views, const ResultBytes& results,
                const SharedSlice& slice, v1::AttendRequest* request) {
  SlicePlaces places(slice);
  for (const NamedView& named : views) {
    if (IsShared(named.bytes)) {
      CopyDense(*named.view, named.bytes,
                places.Place(named.bytes, named.message->mutable_shared_memory()));
    } else {
      FillData(named);
    }
  }
  PlaceResults(results, request->mutable_output(), &places);
}

}  // namespace

ResultBytes ResultBytesOf(const AttentionArgs& args) {
  const std::size_t rank = args.layout == Layout::kPacked ? 3 : 4;
  for (const TensorView* view : {&args.query, &args.key, &args.value}) {
    if (view->shape.size() != rank) return {};
  }
  Dims rows = args.query.shape;
  rows.pop_back();
  Dims output = rows;
  output.push_back(args.value.shape.back());
  ResultBytes bytes{.output = BytesOf(output, args.output.dtype.value_or(args.query.dtype))};
  if (args.output.lse) bytes.lse = BytesOf(rows, DType::kFloat32);
  const std::int64_t scores = BytesOf(ScoreShape(args), DType::kFloat32);
  if (args.output.weights) bytes.weights = scores;
  if (args.output.scores != ScoreStage::kNone) bytes.scores = scores;
  return bytes;
}

absl::Status FillRequest(const AttentionArgs& args, CallPriority priority,
                         std::int64_t max_message_bytes, v1::AttendRequest* request,
                         SharedMemory* memory, SharedSlice* slice) {
  std::vector<NamedView> views = ListTensors(args, request);
  for (NamedView& named : views) {
    const absl::StatusOr<std::int64_t> size = CheckedBytes(named);
    if (!size.ok()) return size.status();
    named.bytes = *size;
  }
  const ResultBytes results = memory != nullptr ? ResultBytesOf(args) : ResultBytes();
  const std::uint64_t room = memory != nullptr ? RoomFor(views, results) : 0;
  if (room > 0) {
    absl::StatusOr<SharedSlice> taken = memory->Take(room);
    if (!taken.ok()) return taken.status();
    *slice = *std::move(taken);
  }
  const bool shared = room > 0 && slice->present();
  std::int64_t left = max_message_bytes;
  for (const NamedView& named : views) {
    if (shared && IsShared(named.bytes)) continue;
    if (named.bytes > left) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the request's tensors are larger than max_message_bytes of this client (",
          max_message_bytes, "): raise it here and on the server, or send less in one request"));
    }
    left -= named.bytes;
  }
  for (const NamedView& named : views) FillType(*named.view, named.message);
  FillOptions(args.options, request->mutable_options());
  FillOutput(args.output, request->mutable_output());
  if (shared) {
    FillShared(views, results, *slice, request);
  } else {
    for (const NamedView& named : views) FillData(named);
  }
  request->set_layout(ToProto(args.layout));
  request->mutable_query_lengths()->Add(args.query_lengths.begin(), args.query_lengths.end());
  request->mutable_kv_lengths()->Add(args.kv_lengths.begin(), args.kv_lengths.end());
  request->set_priority(ToProto(priority));
  return absl::OkStatus();
}

}  // namespace attend::client_internal

#include "tests/conformance/convert.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/dtype.h"
#include "tests/support/requests.h"

namespace attend::testing {

namespace {

constexpr int kShortMaskOpset = 24;  // since when a mask may be shorter than the keys

absl::Status Unknown(const std::string& what, const std::string& name) {
  return absl::FailedPreconditionError(absl::StrCat("cannot express ", what, " ", name));
}

absl::Status CheckAllKnown(const Case& test_case) {
  // softmax_precision: scores and softmax are float32 here, always.
  const std::set<std::string> attributes = {"scale",
                                            "is_causal",
                                            "softcap",
                                            "q_num_heads",
                                            "kv_num_heads",
                                            "num_heads",
                                            "smooth_softmax",
                                            "softmax_precision",
                                            "left_window_size",
                                            "right_window_size",
                                            "qk_matmul_output_mode"};
  const std::set<std::string> inputs = {
      "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen", "head_sink"};
  const std::set<std::string> outputs = {"Y", "present_key", "present_value", "qk_matmul_output"};
  for (const auto& [name, value] : test_case.attributes) {
    if (attributes.count(name) == 0) return Unknown("attribute", name);
  }
  for (const auto& [name, tensor] : test_case.inputs) {
    if (inputs.count(name) == 0) return Unknown("input", name);
  }
  for (const auto& [name, tensor] : test_case.outputs) {
    if (outputs.count(name) == 0) return Unknown("output", name);
  }
  return absl::OkStatus();
}

std::int64_t QueryHeads(const Case& test_case) {
  return test_case.integer("q_num_heads", test_case.integer("num_heads", 0));
}

// [batch, length, heads * dim] as [batch, length, heads, dim]; four dimensions stay.
Tensor SplitHeads(const Tensor& tensor, std::int64_t heads) {
  Tensor split = tensor;
  if (split.shape.size() == 3) {
    split.shape = {tensor.shape[0], tensor.shape[1], heads, tensor.shape[2] / heads};
  }
  return split;
}

// Exchanges the two axes in the middle of a tensor of four dimensions.
Tensor SwapMiddle(const Tensor& tensor) {
  const Dims& shape = tensor.shape;
  Tensor swapped{tensor.dtype, {shape[0], shape[2], shape[1], shape[3]}, {}};
  swapped.data.resize(tensor.data.size());
  const std::size_t row_bytes = static_cast<std::size_t>(shape[3]) * SizeOf(tensor.dtype);
  std::size_t from = 0;
  for (std::int64_t a = 0; a < shape[0]; ++a) {
    for (std::int64_t b = 0; b < shape[1]; ++b) {
      for (std::int64_t c = 0; c < shape[2]; ++c, from += row_bytes) {
        const std::int64_t to = (a * shape[2] + c) * shape[1] + b;
        std::memcpy(swapped.data.data() + to * static_cast<std::int64_t>(row_bytes),
                    tensor.data.data() + from, row_bytes);
      }
    }
  }
  return swapped;
}

// The mask with its last axis continued to `kv_len` by what excludes a key.
Tensor ContinueMask(const Tensor& mask, std::int64_t kv_len) {
  Tensor longer{mask.dtype, mask.shape, {}};
  longer.shape.back() = kv_len;
  const std::size_t size = SizeOf(mask.dtype);
  std::vector<std::byte> excluded(size, std::byte{0});
  if (IsFloat(mask.dtype)) {
    StoreFloat(mask.dtype, excluded.data(), -std::numeric_limits<float>::infinity());
  }
  const std::size_t row_bytes = static_cast<std::size_t>(mask.shape.back()) * size;
  for (std::size_t row = 0; row < mask.data.size(); row += row_bytes) {
    const auto begin = mask.data.begin() + static_cast<std::ptrdiff_t>(row);
    longer.data.insert(longer.data.end(), begin, begin + static_cast<std::ptrdiff_t>(row_bytes));
    for (std::int64_t key = mask.shape.back(); key < kv_len; ++key) {
      longer.data.insert(longer.data.end(), excluded.begin(), excluded.end());
    }
  }
  return longer;
}

absl::Status ConvertMask(const Case& test_case, std::int64_t kv_len, v1::AttendRequest& request) {
  const Tensor* mask = test_case.input("attn_mask");
  if (mask == nullptr) return absl::OkStatus();
  const std::int64_t columns = mask->shape.back();
  const bool is_short = columns < kv_len;
  if (is_short && (columns == 1 || test_case.opset < kShortMaskOpset)) {
    return Unknown("a short mask, whose meaning is ambiguous, of", ShapeString(mask->shape));
  }
  v1::Tensor& to = mask->dtype == DType::kBool ? *request.mutable_boolean_mask()
                                               : *request.mutable_additive_mask();
  to = ToProto(is_short ? ContinueMask(*mask, kv_len) : *mask);
  return absl::OkStatus();
}

// Where the queries stand on the key axis, and how many keys each item has.
void ConvertPositions(const Case& test_case, v1::AttendRequest& request) {
  v1::AttentionOptions& options = *request.mutable_options();
  const Tensor* past = test_case.input("past_key");
  const Tensor* nonpad = test_case.input("nonpad_kv_seqlen");
  if (past != nullptr) {
    options.set_alignment(v1::ALIGNMENT_OFFSETS);
    options.add_query_offsets(past->shape[2]);
  }
  if (nonpad == nullptr) return;
  options.set_alignment(v1::ALIGNMENT_LAST);
  for (std::int64_t b = 0; b < nonpad->num_elements(); ++b) {
    request.add_kv_lengths(LoadUnaligned<std::int64_t>(nonpad->view().at(b)));
  }
}

void ConvertOptions(const Case& test_case, v1::AttendRequest& request) {
  v1::AttentionOptions& options = *request.mutable_options();
  const bool is_gqa = test_case.op == "com.microsoft.GroupQueryAttention";
  if (const auto scale = test_case.number("scale")) options.set_scale(*scale);
  options.set_softcap(test_case.number("softcap").value_or(0));
  options.set_causal(is_gqa || test_case.integer("is_causal", 0) != 0);
  const std::int64_t left = test_case.integer("left_window_size", -1);
  const std::int64_t right = test_case.integer("right_window_size", -1);
  if (left >= 0) options.set_window_left(left);
  if (right >= 0) options.set_window_right(right);
  if (const Tensor* sink = test_case.input("head_sink")) {
    *options.mutable_sinks() = ToProto(*sink);
  } else if (test_case.integer("smooth_softmax", 0) != 0) {
    const std::vector<float> zeros(static_cast<std::size_t>(QueryHeads(test_case)), 0.0f);
    *options.mutable_sinks() = FloatTensor({QueryHeads(test_case)}, zeros);
  }
}

absl::Status ConvertScores(const Case& test_case, v1::AttendRequest& request) {
  if (test_case.outputs.count("qk_matmul_output") == 0) return absl::OkStatus();
  const std::int64_t mode = test_case.integer("qk_matmul_output_mode", 0);
  // Below mode 2 ours are 0 past an item's length, where the cases have scores.
  if (mode < 2 && test_case.input("nonpad_kv_seqlen") != nullptr) {
    return Unknown("scores past nonpad_kv_seqlen in mode", absl::StrCat(mode));
  }
  v1::OutputOptions& output = *request.mutable_output();
  switch (mode) {
    case 0:
      output.set_scores(v1::SCORE_STAGE_SCALED);
      return absl::OkStatus();
    case 1:
      output.set_scores(v1::SCORE_STAGE_CAPPED);
      return absl::OkStatus();
    case 2:
      output.set_scores(v1::SCORE_STAGE_BIASED);
      return absl::OkStatus();
    case 3:
      output.set_weights(true);
      return absl::OkStatus();
    default:
      return Unknown("qk_matmul_output_mode", absl::StrCat(mode));
  }
}

}  // namespace

Tensor JoinPast(const Tensor* past, const Tensor& fresh, std::int64_t heads) {
  const Tensor split = SplitHeads(fresh, heads);
  const Tensor added = fresh.shape.size() == 3 ? SwapMiddle(split) : split;
  if (past == nullptr) return added;
  Tensor joined{added.dtype, added.shape, {}};
  joined.shape[2] += past->shape[2];
  const std::int64_t planes = added.shape[0] * added.shape[1];
  const auto append_plane = [&](const Tensor& from, std::int64_t plane) {
    const auto bytes = static_cast<std::ptrdiff_t>(from.data.size()) / planes;
    const auto begin = from.data.begin() + plane * bytes;
    joined.data.insert(joined.data.end(), begin, begin + bytes);
  };
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    append_plane(*past, plane);
    append_plane(added, plane);
  }
  return joined;
}

absl::StatusOr<v1::AttendRequest> ToRequest(const Case& test_case) {
  absl::Status status = CheckAllKnown(test_case);
  if (!status.ok()) return status;
  const Tensor& query = *test_case.input("Q");
  const bool three_dimensional = query.shape.size() == 3;
  const std::int64_t kv_heads = test_case.integer("kv_num_heads", 0);
  const auto convert = [&](const char* past, const char* fresh) {
    const Tensor joined = JoinPast(test_case.input(past), *test_case.input(fresh), kv_heads);
    return ToProto(three_dimensional ? SwapMiddle(joined) : joined);
  };
  v1::AttendRequest request;
  request.set_layout(three_dimensional ? v1::LAYOUT_BATCH_LENGTH_HEADS
                                       : v1::LAYOUT_BATCH_HEADS_LENGTH);
  *request.mutable_query() = ToProto(SplitHeads(query, QueryHeads(test_case)));
  *request.mutable_key() = convert("past_key", "K");
  *request.mutable_value() = convert("past_value", "V");
  ConvertOptions(test_case, request);
  ConvertPositions(test_case, request);
  status.Update(ConvertMask(test_case, request.key().shape(three_dimensional ? 1 : 2), request));
  status.Update(ConvertScores(test_case, request));
  if (!status.ok()) return status;
  return request;
}

}  // namespace attend::testing

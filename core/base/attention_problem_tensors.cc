#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/attention_problem_builder.h"
#include "core/base/field_checks.h"
#include "core/base/status.h"

namespace attend {

namespace {

// Checks a list of lengths of a padded layout: empty, or one for each item.
absl::Status CheckLengthList(absl::string_view field, const std::vector<std::int64_t>& lengths,
                             std::int64_t batch, std::int64_t padded) {
  if (lengths.empty()) return absl::OkStatus();
  absl::Status status =
      CheckEqual(absl::StrCat(field, ".size"), static_cast<std::int64_t>(lengths.size()), batch,
                 "one for each item");
  for (std::int64_t i = 0; status.ok() && i < batch; ++i) {
    status = CheckRange(Indexed(field, "", i), lengths[i], 0, padded);
  }
  return status;
}

}  // namespace

absl::Status AttentionProblemBuilder::CheckTensors() {
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

absl::Status AttentionProblemBuilder::CheckTensor(const TensorView& tensor, absl::string_view field,
                                                  std::int64_t max_dim) const {
  if (tensor.rank() != axes_.rank) {
    return InvalidField(absl::StrCat(field, ".shape"),
                        absl::StrCat("is ", ShapeString(tensor.shape), "; expected ", axes_.rank,
                                     " sizes in this layout"));
  }
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(tensor.shape, field);
  if (!count.ok()) return count.status();
  absl::Status status = CheckFloatDType(field, tensor.dtype);
  if (!status.ok()) return status;
  if (tensor.dtype != args_.query.dtype) {
    return InvalidField(absl::StrCat(field, ".dtype"),
                        absl::StrCat("is ", Name(tensor.dtype), "; expected query's dtype, ",
                                     Name(args_.query.dtype)));
  }
  status = CheckRange(DimField(field, axes_.dim), tensor.shape[axes_.dim], 1, max_dim);
  if (!status.ok()) return status;
  return CheckRange(DimField(field, axes_.heads), tensor.shape[axes_.heads], 1, limits_.max_heads);
}

absl::Status AttentionProblemBuilder::CheckHeads() {
  absl::Status status = CheckEqual(DimField("key", axes_.dim), args_.key.shape[axes_.dim],
                                   problem_.head_dim_, "query's head_dim");
  if (status.ok()) {
    status = CheckEqual(DimField("value", axes_.heads), args_.value.shape[axes_.heads],
                        problem_.kv_heads_, "key's kv_heads");
  }
  if (status.ok()) {
    status = CheckEqual(DimField("value", axes_.length), args_.value.shape[axes_.length],
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

absl::Status AttentionProblemBuilder::CheckLengths() {
  return packed() ? PackedItems() : PaddedItems();
}

absl::Status AttentionProblemBuilder::PaddedItems() {
  const std::int64_t batch = args_.query.shape[axes_.batch];
  problem_.query_len_ = args_.query.shape[axes_.length];
  problem_.kv_len_ = args_.key.shape[axes_.length];
  absl::Status status = CheckPaddedLengths(batch);
  if (!status.ok()) return status;
  for (std::int64_t b = 0; b < batch; ++b) {
    AddItem(args_.query_lengths.empty() ? problem_.query_len_ : args_.query_lengths[b],
            args_.kv_lengths.empty() ? problem_.kv_len_ : args_.kv_lengths[b], b,
            args_.key.shape[axes_.batch] == 1 ? 0 : b, args_.value.shape[axes_.batch] == 1 ? 0 : b);
  }
  return absl::OkStatus();
}

absl::Status AttentionProblemBuilder::CheckPaddedLengths(std::int64_t batch) const {
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
  return status;
}

absl::Status AttentionProblemBuilder::CheckBatch(const TensorView& tensor, absl::string_view field,
                                                 std::int64_t batch) const {
  const std::int64_t size = tensor.shape[axes_.batch];
  if (size == batch || size == 1) return absl::OkStatus();
  return InvalidField(
      DimField(field, axes_.batch),
      absl::StrCat("is ", size, "; expected query's batch, ", batch, ", or 1 to share"));
}

absl::Status AttentionProblemBuilder::PackedItems() {
  const auto batch = static_cast<std::int64_t>(args_.query_lengths.size());
  problem_.query_tokens_ = args_.query.shape[axes_.length];
  absl::Status status = CheckPackedLengths(batch);
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

absl::Status AttentionProblemBuilder::CheckPackedLengths(std::int64_t batch) const {
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
  return status;
}

// Checks a list of lengths of the packed layout: required, summing to the tokens.
absl::Status AttentionProblemBuilder::CheckPackedList(absl::string_view field,
                                                      const std::vector<std::int64_t>& lengths,
                                                      std::int64_t tokens) const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t index = static_cast<std::int64_t>(i);
    absl::Status status = CheckRange(Indexed(field, "", index), lengths[i], 0, limits_.max_length);
    if (!status.ok()) return status;
    sum += lengths[i];  // at most max_batch * max_length: cannot overflow
  }
  if (sum == tokens) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("sums to ", sum, "; expected ", tokens, ", the tokens"));
}

void AttentionProblemBuilder::AddItem(std::int64_t query_len, std::int64_t kv_len,
                                      std::int64_t query_first, std::int64_t key_first,
                                      std::int64_t value_first) {
  AttentionItem& item = problem_.items_.emplace_back();
  item.query_len = query_len;
  item.kv_len = kv_len;
  item.query = ItemView(args_.query, query_first, query_len);
  item.key = ItemView(args_.key, key_first, kv_len);
  item.value = ItemView(args_.value, value_first, kv_len);
}

TensorView AttentionProblemBuilder::ItemView(const TensorView& tensor, std::int64_t first,
                                             std::int64_t length) const {
  const int outer = axes_.batch >= 0 ? axes_.batch : axes_.length;
  TensorView view;
  view.dtype = tensor.dtype;
  view.shape = {tensor.shape[axes_.heads], length, tensor.shape[axes_.dim]};
  view.strides = {tensor.strides[axes_.heads], tensor.strides[axes_.length],
                  tensor.strides[axes_.dim]};
  view.data = tensor.num_elements() == 0 ? tensor.data : tensor.at(first * tensor.strides[outer]);
  return view;
}

}  // namespace attend

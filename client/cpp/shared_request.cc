#include "client/cpp/shared_request.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace attend::client_internal {

namespace {

// The tensors of the request that lie in shared memory.
std::vector<v1::Tensor*> SharedTensors(v1::AttendRequest* request) {
  // To ask for what is not there would put it there.
  std::vector<v1::Tensor*> present;
  if (request->has_query()) present.push_back(request->mutable_query());
  if (request->has_key()) present.push_back(request->mutable_key());
  if (request->has_value()) present.push_back(request->mutable_value());
  if (request->has_boolean_mask()) present.push_back(request->mutable_boolean_mask());
  if (request->has_additive_mask()) present.push_back(request->mutable_additive_mask());
  v1::AttentionOptions* options = request->mutable_options();
  if (options->has_alibi_slopes()) present.push_back(options->mutable_alibi_slopes());
  if (options->has_sinks()) present.push_back(options->mutable_sinks());
  if (options->has_block_mask()) present.push_back(options->mutable_block_mask()->mutable_blocks());
  std::erase_if(present, [](const v1::Tensor* tensor) { return !tensor->has_shared_memory(); });
  return present;
}

std::vector<v1::SharedMemorySlice*> Targets(v1::OutputOptions* output) {
  std::vector<v1::SharedMemorySlice*> targets;
  if (output->has_output_target()) targets.push_back(output->mutable_output_target());
  if (output->has_lse_target()) targets.push_back(output->mutable_lse_target());
  if (output->has_weights_target()) targets.push_back(output->mutable_weights_target());
  if (output->has_scores_target()) targets.push_back(output->mutable_scores_target());
  return targets;
}

// Where each part lies.
std::vector<v1::SharedMemorySlice*> Places(v1::AttendRequest* request) {
  std::vector<v1::SharedMemorySlice*> places = Targets(request->mutable_output());
  for (v1::Tensor* tensor : SharedTensors(request)) {
    places.push_back(tensor->mutable_shared_memory());
  }
  return places;
}

absl::Status MoveIntoMessage(std::int64_t max_message_bytes, const SharedSlice& slice,
                             v1::AttendRequest* request) {
  const std::vector<v1::Tensor*> tensors = SharedTensors(request);
  std::uint64_t bytes = request->ByteSizeLong();
  for (const v1::Tensor* tensor : tensors) bytes += tensor->shared_memory().size_bytes();
  if (bytes > static_cast<std::uint64_t>(max_message_bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "shared memory has no room for another attempt, and as a message the request is larger "
        "than max_message_bytes of this client (",
        max_message_bytes, ")"));
  }
  for (v1::Tensor* tensor : tensors) {
    const v1::SharedMemorySlice place = tensor->shared_memory();
    tensor->set_data(slice.data() + (place.offset() - slice.offset()), place.size_bytes());
  }
  v1::OutputOptions* output = request->mutable_output();
  output->clear_output_target();
  output->clear_lse_target();
  output->clear_weights_target();
  output->clear_scores_target();
  return absl::OkStatus();
}

}  // namespace

void SetHandle(const std::string& handle, v1::AttendRequest* request) {
  for (v1::SharedMemorySlice* place : Places(request)) place->set_handle(handle);
}

absl::Status MoveParts(SharedMemory& memory, std::int64_t max_message_bytes, SharedSlice* slice,
                       v1::AttendRequest* request) {
  absl::StatusOr<SharedSlice> taken = memory.Take(slice->size_bytes());
  if (!taken.ok()) return taken.status();
  if (taken->present()) {
    std::memcpy(taken->data(), slice->data(), slice->size_bytes());
    for (v1::SharedMemorySlice* place : Places(request)) {
      place->set_offset(place->offset() - slice->offset() + taken->offset());
    }
  } else {
    absl::Status status = MoveIntoMessage(max_message_bytes, *slice, request);
    if (!status.ok()) return status;
  }
  *slice = *std::move(taken);
  return absl::OkStatus();
}

}  // namespace attend::client_internal

#include "client/cpp/response.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend::client_internal {

namespace {

std::optional<DType> FromProto(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32:
      return DType::kFloat32;
    case v1::DATA_TYPE_BFLOAT16:
      return DType::kBFloat16;
    case v1::DATA_TYPE_FLOAT16:
      return DType::kFloat16;
    case v1::DATA_TYPE_BOOL:
      return DType::kBool;
    case v1::DATA_TYPE_INT8:
      return DType::kInt8;
    case v1::DATA_TYPE_INT64:
      return DType::kInt64;
    default:
      return std::nullopt;
  }
}

std::chrono::nanoseconds FromProto(const google::protobuf::Duration& duration) {
  return std::chrono::seconds(duration.seconds()) + std::chrono::nanoseconds(duration.nanos());
}

absl::StatusOr<std::span<const std::byte>> SharedBytes(const v1::SharedMemorySlice& place,
                                                       const SharedSlice& slice,
                                                       absl::string_view field) {
  const std::uint64_t size = slice.size_bytes();
  const std::uint64_t begin = place.offset() - slice.offset();  // wraps around where it is too low
  if (!slice.present() || begin > size || place.size_bytes() > size - begin) {
    return InvalidField(absl::StrCat(field, ".shared_memory"), "names what was not asked for");
  }
  return std::span<const std::byte>(slice.data() + begin,
                                    static_cast<std::size_t>(place.size_bytes()));
}

absl::StatusOr<Tensor> ToTensor(const v1::Tensor& message, const SharedSlice& slice,
                                absl::string_view field) {
  const std::optional<DType> dtype = FromProto(message.dtype());
  if (!dtype.has_value()) {
    return InvalidField(absl::StrCat(field, ".dtype"), absl::StrCat("is ", message.dtype()));
  }
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(message.data().data()),
                                   message.data().size());
  if (message.has_shared_memory()) {
    const auto shared = SharedBytes(message.shared_memory(), slice, field);
    if (!shared.ok()) return shared.status();
    bytes = *shared;
  }
  absl::StatusOr<TensorView> view =
      CheckedTensorView(*dtype, Dims(message.shape().begin(), message.shape().end()), bytes, field);
  if (!view.ok()) return view.status();
  return Tensor{*dtype, view->shape, std::vector<std::byte>(bytes.begin(), bytes.end())};
}

absl::Status SetOptional(bool present, const v1::Tensor& message, const SharedSlice& slice,
                         absl::string_view field, std::optional<Tensor>* target) {
  if (!present) return absl::OkStatus();
  absl::StatusOr<Tensor> tensor = ToTensor(message, slice, field);
  if (!tensor.ok()) return tensor.status();
  *target = *std::move(tensor);
  return absl::OkStatus();
}

AttendStats ToStats(const v1::Stats& stats) {
  return {.queue = FromProto(stats.queue()),
          .compute = FromProto(stats.compute()),
          .batch_size = stats.batch_size(),
          .dot_products = stats.dot_products(),
          .flops = stats.flops(),
          .server = stats.server()};
}

absl::Status Fill(const v1::AttendResponse& response, const SharedSlice& slice,
                  AttendResult* result) {
  absl::StatusOr<Tensor> output = ToTensor(response.output(), slice, "output");
  if (!output.ok()) return output.status();
  result->output = *std::move(output);
  absl::Status status = SetOptional(response.has_lse(), response.lse(), slice, "lse", &result->lse);
  status.Update(
      SetOptional(response.has_weights(), response.weights(), slice, "weights", &result->weights));
  status.Update(
      SetOptional(response.has_scores(), response.scores(), slice, "scores", &result->scores));
  result->stats = ToStats(response.stats());
  return status;
}

}  // namespace

absl::StatusOr<AttendResult> ToResult(const v1::AttendResponse& response,
                                      const SharedSlice& slice) {
  AttendResult result;
  const absl::Status status = Fill(response, slice, &result);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("the server's answer makes no sense: ", status.message()));
  }
  return result;
}

ServerInfo ToServerInfo(const v1::ServerInfo& message) {
  ServerInfo info{.version = message.version(),
                  .server = message.server(),
                  .cpu_target = message.cpu_target(),
                  .options = {message.options().begin(), message.options().end()},
                  .compute_threads = message.compute_threads()};
  for (const int dtype : message.dtypes()) {
    // A dtype that this client has no word for is one that it cannot send.
    const std::optional<DType> known = FromProto(static_cast<v1::DataType>(dtype));
    if (known.has_value()) info.dtypes.push_back(*known);
  }
  const v1::Limits& limits = message.limits();
  info.limits = {.max_message_bytes = limits.max_message_bytes(),
                 .max_head_dim = limits.max_head_dim(),
                 .max_value_dim = limits.max_value_dim(),
                 .max_heads = limits.max_heads(),
                 .max_batch = limits.max_batch(),
                 .max_length = limits.max_length(),
                 .max_score_elements = limits.max_score_elements(),
                 .max_queued_requests = limits.max_queued_requests(),
                 .max_streams_per_connection = limits.max_streams_per_connection(),
                 .max_queued_bytes = limits.max_queued_bytes(),
                 .max_skeleton_bytes = limits.max_skeleton_bytes(),
                 .max_stream_requests = limits.max_stream_requests()};
  return info;
}

}  // namespace attend::client_internal

#include "client/cpp/call_options.h"

#include <grpc/grpc.h>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace attend::client_internal {

namespace {

absl::Status CheckMetadata(const std::string& name, const std::string& value) {
  const auto slice = [](const std::string& text) {
    return grpc_slice_from_static_buffer(text.data(), text.size());
  };
  if (grpc_header_key_is_legal(slice(name)) == 0) {
    return InvalidField("metadata",
                        absl::StrCat("has the name \"", name,
                                     "\"; expected lower case letters, digits, and - _ ."));
  }
  if (grpc_is_binary_header(slice(name)) == 0 &&
      grpc_header_nonbin_value_is_legal(slice(value)) == 0) {
    return InvalidField(
        absl::StrCat("metadata[\"", name, "\"]"),
        "holds other than printable ASCII, which only a name that ends in -bin may");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCallOptions(const CallOptions& options) {
  const std::chrono::milliseconds timeout = options.timeout.value_or(kNoTimeout);
  if (timeout < kNoTimeout || timeout > kMaxTimeout) {
    return InvalidField("timeout", absl::StrCat("is ", timeout.count(), " ms; expected 0 to ",
                                                std::chrono::milliseconds(kMaxTimeout).count()));
  }
  absl::Status status;
  for (const auto& [name, value] : options.metadata) status.Update(CheckMetadata(name, value));
  return status;
}

void FillContext(const CallOptions& options, std::optional<std::chrono::nanoseconds> timeout,
                 grpc::ClientContext* context) {
  for (const auto& [name, value] : options.metadata) context->AddMetadata(name, value);
  if (timeout.has_value()) {
    context->set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(*timeout));
  }
  context->set_wait_for_ready(options.wait_for_ready);
}

}  // namespace attend::client_internal

#include "client/cpp/dispatcher.h"

#include <utility>

#include "client/cpp/call_options.h"

namespace attend::client_internal {

Dispatcher::Dispatcher(const ClientOptions& options,
                       const std::vector<std::shared_ptr<grpc::Channel>>& channels,
                       const std::shared_ptr<grpc::Channel>& control)
    : options_(options), unary_(channels) {
  if (options.use_stream) streams_.emplace(channels);
  if (options.shared_memory_bytes > 0) {
    memory_.emplace(control, static_cast<std::uint64_t>(options.shared_memory_bytes));
  }
}

Dispatcher::~Dispatcher() {
  // Calls wait for their attempts, and attempts on streams and for a handle for what is ended here.
  calls_.CancelAll();
  if (streams_.has_value()) streams_->Close();
  if (memory_.has_value()) memory_->StopRegistering();
  calls_.Wait();
  if (memory_.has_value()) memory_->Close();
}

std::shared_ptr<Cancellable> Dispatcher::Start(const AttentionArgs& args,
                                               Client::AttendCallback callback,
                                               const CallOptions& call_options) {
  absl::Status status = CheckCallOptions(call_options);
  if (!status.ok()) {
    callback(status);
    return nullptr;
  }
  // A stream has one set of metadata for all its requests.
  const bool by_stream = streams_.has_value() && call_options.metadata.empty();
  Carrier& carrier = by_stream ? static_cast<Carrier&>(*streams_) : unary_;
  const auto call = std::make_shared<AttendCall>(
      CallEnvironment{.options = options_,
                      .timers = timers_,
                      .memory = memory_.has_value() ? &*memory_ : nullptr,
                      .calls = calls_},
      carrier, call_options);
  status = call->Fill(args);
  if (!status.ok()) {
    callback(status);
    return nullptr;
  }
  call->Begin(std::move(callback));
  return call;
}

}  // namespace attend::client_internal

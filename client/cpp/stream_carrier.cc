#include "client/cpp/stream_carrier.h"

#include <optional>
#include <utility>

namespace attend::client_internal {

StreamCarrier::StreamCarrier(const std::vector<std::shared_ptr<grpc::Channel>>& channels) {
  for (const auto& channel : channels) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->stub = v1::AttentionService::NewStub(channel);
  }
}

std::shared_ptr<RequestStream> StreamCarrier::LiveStream(Slot& slot, bool& opened) {
  absl::MutexLock lock(&slot.mutex);
  if (slot.closed) return nullptr;
  opened = slot.stream == nullptr || slot.stream->ended();
  if (opened) slot.stream = RequestStream::Open(*slot.stub, calls_);
  return slot.stream;
}

std::function<void()> StreamCarrier::Send(const std::shared_ptr<Attempt>& attempt) {
  Slot& slot = *slots_[next_.fetch_add(1, std::memory_order_relaxed) % slots_.size()];
  bool opened = false;
  while (const std::shared_ptr<RequestStream> stream = LiveStream(slot, opened)) {
    const std::optional<std::uint64_t> id = stream->Send(attempt);
    if (!id.has_value() && opened) {
      // Ended at once, as where the server has no streams: the next one would, too.
      stream->EndWith(attempt);
      return [] {};
    }
    if (!id.has_value()) continue;  // it has ended since
    return [weak = std::weak_ptr<RequestStream>(stream), id = *id] {
      if (const auto alive = weak.lock()) alive->Cancel(id);
    };
  }
  attempt->OnEnd({.status = grpc::Status::CANCELLED, .sent = false});
  return [] {};
}

void StreamCarrier::Close() {
  for (const auto& slot : slots_) {
    absl::MutexLock lock(&slot->mutex);
    slot->closed = true;
    slot->stream.reset();
  }
  calls_->CancelAndWait();
}

}  // namespace attend::client_internal

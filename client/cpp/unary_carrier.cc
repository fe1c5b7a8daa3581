#include "client/cpp/unary_carrier.h"

#include <cstdint>
#include <grpcpp/grpcpp.h>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "client/cpp/call_options.h"
#include "client/cpp/calls_in_flight.h"

namespace attend::client_internal {

namespace {

// What gRPC needs until it has called back.
struct UnaryCall {
  CallContext context;
  v1::AttendResponse response;
  std::shared_ptr<Attempt> attempt;
};

std::optional<std::chrono::milliseconds> PushbackOf(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  if (found == trailers.end()) return std::nullopt;
  std::int32_t ms = 0;
  const absl::string_view text(found->second.data(), found->second.size());
  // What cannot be read forbids another attempt, as gRPC itself has it.
  return std::chrono::milliseconds(absl::SimpleAtoi(text, &ms) ? ms : -1);
}

}  // namespace

UnaryCarrier::UnaryCarrier(const std::vector<std::shared_ptr<grpc::Channel>>& channels) {
  for (const auto& channel : channels) stubs_.push_back(v1::AttentionService::NewStub(channel));
}

std::function<void()> UnaryCarrier::Send(const std::shared_ptr<Attempt>& attempt) {
  const auto call = std::make_shared<UnaryCall>();
  call->attempt = attempt;
  FillContext(attempt->options(), attempt->time_left(), call->context.get());
  const auto finish = [call](const grpc::Status& status) {
    AttemptEnd end{.status = status, .pushback = PushbackOf(*call->context.get())};
    // gRPC makes errors too, of which the server may know nothing; those of the server have
    // details.
    end.settled = status.ok() || !status.error_details().empty();
    end.response.Swap(&call->response);
    call->context.Release();
    const std::shared_ptr<Attempt> ended = std::move(call->attempt);
    ended->OnEnd(std::move(end));
  };
  stubs_[next_.fetch_add(1, std::memory_order_relaxed) % stubs_.size()]->async()->Attend(
      call->context.get(), &attempt->message().attend(), &call->response, finish);
  return [call] { call->context.Cancel(); };
}

}  // namespace attend::client_internal

#include "client/cpp/client.h"

#include <atomic>
#include <grpcpp/grpcpp.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/notification.h"
#include "attend/v1/attention.grpc.pb.h"
#include "client/cpp/call_options.h"
#include "client/cpp/calls_in_flight.h"
#include "client/cpp/channel.h"
#include "client/cpp/dispatcher.h"
#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "client/cpp/status.h"
#include "core/base/status.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attend {

namespace {

namespace health = grpc::health::v1;

ServingStatus FromProto(health::HealthCheckResponse::ServingStatus status) {
  switch (status) {
    case health::HealthCheckResponse::SERVING:
      return ServingStatus::kServing;
    case health::HealthCheckResponse::NOT_SERVING:
      return ServingStatus::kNotServing;
    case health::HealthCheckResponse::SERVICE_UNKNOWN:
      return ServingStatus::kServiceUnknown;
    default:
      return ServingStatus::kUnknown;
  }
}

absl::Status Prepare(const CallOptions& options, std::chrono::milliseconds default_timeout,
                     grpc::ClientContext* context) {
  absl::Status status = client_internal::CheckCallOptions(options);
  if (!status.ok()) return status;
  const std::chrono::milliseconds timeout = options.timeout.value_or(default_timeout);
  client_internal::FillContext(options,
                               timeout == client_internal::kNoTimeout
                                   ? std::nullopt
                                   : std::optional<std::chrono::nanoseconds>(timeout),
                               context);
  return absl::OkStatus();
}

}  // namespace

TensorView FloatTensorView(std::span<const float> values, Dims shape) {
  const absl::StatusOr<std::int64_t> count = CheckedElementCount(shape, "shape");
  const bool fits = count.ok() && static_cast<std::size_t>(*count) == values.size();
  const auto* data = fits ? reinterpret_cast<const std::byte*>(values.data()) : nullptr;
  TensorView view{DType::kFloat32, std::move(shape), {}, data};
  if (count.ok()) view.strides = DenseStrides(view.shape);
  return view;
}

absl::string_view Name(ServingStatus status) {
  switch (status) {
    case ServingStatus::kServing:
      return "SERVING";
    case ServingStatus::kNotServing:
      return "NOT_SERVING";
    case ServingStatus::kServiceUnknown:
      return "SERVICE_UNKNOWN";
    case ServingStatus::kUnknown:
      break;
  }
  return "UNKNOWN";
}

void CallHandle::Cancel() const {
  if (const std::shared_ptr<Call> call = call_.lock()) call->Cancel();
}

namespace {

// Everything of a call that must live until gRPC has called back.
class UnaryCall final : public client_internal::Cancellable {
 public:
  void Cancel() override { context.Cancel(); }

  client_internal::CallContext context;
  v1::AttendRequest request;
  v1::AttendResponse response;
  Client::AttendCallback callback;
};

}  // namespace

class Client::Impl {
 public:
  explicit Impl(ClientOptions options) : options_(std::move(options)) {
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < options_.connections; ++i) {
      channels.push_back(
          client_internal::MakeChannel(options_, client_internal::ChannelUse::kCalls, i));
      stubs_.push_back(v1::AttentionService::NewStub(channels.back()));
    }
    const auto control =
        client_internal::MakeChannel(options_, client_internal::ChannelUse::kControl, 0);
    control_stub_ = v1::AttentionService::NewStub(control);
    if (client_internal::NeedsDispatcher(options_)) {
      dispatcher_.emplace(options_, channels, control);
    }
    health_stub_ = health::Health::NewStub(control);
  }

  ~Impl() { calls_->CancelAndWait(); }

  absl::StatusOr<AttendResult> Attend(const AttentionArgs& args, const CallOptions& options) {
    if (dispatcher_.has_value()) return DispatchAndWait(args, options);
    grpc::ClientContext context;
    v1::AttendRequest request;
    absl::Status status = PrepareAttend(args, options, &context, &request);
    if (!status.ok()) return status;
    v1::AttendResponse response;
    status = Convert(NextStub().Attend(&context, request, &response));
    if (!status.ok()) return status;
    return client_internal::ToResult(response);
  }

  std::shared_ptr<client_internal::Cancellable> AttendAsync(const AttentionArgs& args,
                                                            AttendCallback callback,
                                                            const CallOptions& options) {
    if (dispatcher_.has_value()) return dispatcher_->Start(args, std::move(callback), options);
    auto call = std::make_shared<UnaryCall>();
    const absl::Status status = PrepareAttend(args, options, call->context.get(), &call->request);
    if (!status.ok()) {
      callback(status);
      return nullptr;
    }
    call->callback = std::move(callback);
    calls_->Add(call.get());
    const auto finish = [call, calls = calls_,
                         limit = options_.max_message_bytes](const grpc::Status& grpc_status) {
      // Last, so that a client waits for callbacks as well; also after one that throws although it
      // must not, or the client would wait for ever.
      const absl::Cleanup remove = [&call, &calls] {
        call->context.Release();
        calls->Remove(call.get());
      };
      const absl::Status result_status = client_internal::ToAbslStatus(grpc_status, limit);
      if (result_status.ok()) {
        call->callback(client_internal::ToResult(call->response));
      } else {
        call->callback(result_status);
      }
    };
    NextStub().async()->Attend(call->context.get(), &call->request, &call->response, finish);
    return call;
  }

  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& options) {
    grpc::ClientContext context;
    absl::Status status = Prepare(options, options_.default_timeout, &context);
    if (!status.ok()) return status;
    v1::ServerInfo info;
    status = Convert(control_stub_->GetServerInfo(&context, v1::GetServerInfoRequest(), &info));
    if (!status.ok()) return status;
    return client_internal::ToServerInfo(info);
  }

  absl::StatusOr<ServingStatus> CheckHealth(absl::string_view service, const CallOptions& options) {
    grpc::ClientContext context;
    absl::Status status = Prepare(options, options_.default_timeout, &context);
    if (!status.ok()) return status;
    health::HealthCheckRequest request;
    request.set_service(std::string(service));
    health::HealthCheckResponse response;
    status = Convert(health_stub_->Check(&context, request, &response));
    if (!status.ok()) return status;
    return FromProto(response.status());
  }

  absl::Status WatchHealth(absl::string_view service,
                           const std::function<bool(ServingStatus)>& on_change,
                           const CallOptions& options) {
    grpc::ClientContext context;
    const absl::Status status = Prepare(options, client_internal::kNoTimeout, &context);
    if (!status.ok()) return status;
    health::HealthCheckRequest request;
    request.set_service(std::string(service));
    const auto reader = health_stub_->Watch(&context, request);
    health::HealthCheckResponse response;
    bool wanted = true;
    while (wanted && reader->Read(&response)) wanted = on_change(FromProto(response.status()));
    if (!wanted) context.TryCancel();
    const grpc::Status end = reader->Finish();
    return wanted ? Convert(end) : absl::OkStatus();
  }

 private:
  absl::StatusOr<AttendResult> DispatchAndWait(const AttentionArgs& args,
                                               const CallOptions& options) {
    absl::StatusOr<AttendResult> result;
    absl::Notification done;
    dispatcher_->Start(
        args,
        [&](absl::StatusOr<AttendResult> answer) {
          result = std::move(answer);
          done.Notify();
        },
        options);
    done.WaitForNotification();
    return result;
  }

  absl::Status PrepareAttend(const AttentionArgs& args, const CallOptions& options,
                             grpc::ClientContext* context, v1::AttendRequest* request) const {
    absl::Status status = Prepare(options, options_.default_timeout, context);
    if (!status.ok()) return status;
    return client_internal::FillRequest(args, options.priority, options_.max_message_bytes,
                                        request);
  }

  absl::Status Convert(const grpc::Status& status) const {
    return client_internal::ToAbslStatus(status, options_.max_message_bytes);
  }

  v1::AttentionService::Stub& NextStub() {
    return *stubs_[next_stub_.fetch_add(1, std::memory_order_relaxed) % stubs_.size()];
  }

  const ClientOptions options_;
  std::vector<std::unique_ptr<v1::AttentionService::Stub>> stubs_;  // one a connection
  std::atomic<std::size_t> next_stub_{0};
  std::unique_ptr<v1::AttentionService::Stub> control_stub_;
  std::unique_ptr<health::Health::Stub> health_stub_;
  const std::shared_ptr<client_internal::CallsInFlight> calls_ =
      std::make_shared<client_internal::CallsInFlight>();
  // Carries the calls of Attend where the options ask for it. Last: it goes first.
  std::optional<client_internal::Dispatcher> dispatcher_;
};

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  absl::Status status = client_internal::CheckOptions(options);
  if (!status.ok()) return status;
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(std::move(options))));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() = default;

absl::StatusOr<AttendResult> Client::Attend(const AttentionArgs& args,
                                            const CallOptions& call_options) {
  return impl_->Attend(args, call_options);
}

CallHandle Client::AttendAsync(const AttentionArgs& args, AttendCallback callback,
                               const CallOptions& call_options) {
  return CallHandle(impl_->AttendAsync(args, std::move(callback), call_options));
}

absl::StatusOr<ServerInfo> Client::GetServerInfo(const CallOptions& call_options) {
  return impl_->GetServerInfo(call_options);
}

absl::StatusOr<ServingStatus> Client::CheckHealth(absl::string_view service,
                                                  const CallOptions& call_options) {
  return impl_->CheckHealth(service, call_options);
}

absl::Status Client::WatchHealth(absl::string_view service,
                                 const std::function<bool(ServingStatus)>& on_change,
                                 const CallOptions& call_options) {
  return impl_->WatchHealth(service, on_change, call_options);
}

}  // namespace attend

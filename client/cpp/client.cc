#include "client/cpp/client.h"

#include <atomic>
#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "attend/v1/attention.grpc.pb.h"
#include "client/cpp/calls_in_flight.h"
#include "client/cpp/channel.h"
#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "client/cpp/status.h"
#include "core/base/status.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attend {

namespace {

namespace health = grpc::health::v1;

constexpr std::chrono::milliseconds kNoTimeout{0};

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

// gRPC aborts the process on metadata that is not legal.
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

absl::Status Prepare(const CallOptions& options, std::chrono::milliseconds default_timeout,
                     grpc::ClientContext* context) {
  const std::chrono::milliseconds timeout = options.timeout.value_or(default_timeout);
  if (timeout < kNoTimeout || timeout > kMaxTimeout) {
    return InvalidField("timeout", absl::StrCat("is ", timeout.count(), " ms; expected 0 to ",
                                                std::chrono::milliseconds(kMaxTimeout).count()));
  }
  for (const auto& [name, value] : options.metadata) {
    absl::Status status = CheckMetadata(name, value);
    if (!status.ok()) return status;
    context->AddMetadata(name, value);
  }
  if (timeout != kNoTimeout) {
    context->set_deadline(std::chrono::system_clock::now() + timeout);
  }
  context->set_wait_for_ready(options.wait_for_ready);
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

// Everything that must live until gRPC has called back.
class CallHandle::Call {
 public:
  client_internal::CallContext context;
  v1::AttendRequest request;
  v1::AttendResponse response;
  Client::AttendCallback callback;
};

void CallHandle::Cancel() const {
  if (const std::shared_ptr<Call> call = call_.lock()) call->context.Cancel();
}

class Client::Impl {
 public:
  explicit Impl(ClientOptions options) : options_(std::move(options)) {
    for (int i = 0; i < options_.connections; ++i) {
      stubs_.push_back(v1::AttentionService::NewStub(
          client_internal::MakeChannel(options_, client_internal::ChannelUse::kCalls, i)));
    }
    const auto control =
        client_internal::MakeChannel(options_, client_internal::ChannelUse::kControl, 0);
    control_stub_ = v1::AttentionService::NewStub(control);
    health_stub_ = health::Health::NewStub(control);
  }

  ~Impl() { calls_->CancelAndWait(); }

  absl::StatusOr<AttendResult> Attend(const AttentionArgs& args, const CallOptions& options) {
    grpc::ClientContext context;
    v1::AttendRequest request;
    absl::Status status = PrepareAttend(args, options, &context, &request);
    if (!status.ok()) return status;
    v1::AttendResponse response;
    status = Convert(NextStub().Attend(&context, request, &response));
    if (!status.ok()) return status;
    return client_internal::ToResult(response);
  }

  std::shared_ptr<CallHandle::Call> AttendAsync(const AttentionArgs& args, AttendCallback callback,
                                                const CallOptions& options) {
    auto call = std::make_shared<CallHandle::Call>();
    const absl::Status status = PrepareAttend(args, options, call->context.get(), &call->request);
    if (!status.ok()) {
      callback(status);
      return nullptr;
    }
    call->callback = std::move(callback);
    calls_->Add(&call->context);
    const auto finish = [call, calls = calls_,
                         limit = options_.max_message_bytes](const grpc::Status& grpc_status) {
      // Last, so that a client waits for callbacks as well; also after one that throws although it
      // must not, or the client would wait for ever.
      const absl::Cleanup remove = [&call, &calls] {
        call->context.Release();
        calls->Remove(&call->context);
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
    const absl::Status status = Prepare(options, kNoTimeout, &context);
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

#include "server/health/health_service.h"

#include <optional>
#include <utility>

namespace attend {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

absl::flat_hash_set<std::string> WithWholeServer(std::vector<std::string> services) {
  absl::flat_hash_set<std::string> names(services.begin(), services.end());
  names.insert("");
  return names;
}

// A watch keeps its message for as long as it lives, so a name must not be a way to fill memory.
constexpr std::size_t kMaxNameLength = 1024;

bool IsTooLong(const std::string& service) { return service.size() > kMaxNameLength; }

grpc::Status TooLong() {
  return {grpc::StatusCode::INVALID_ARGUMENT, "service: expected a name of at most 1024 bytes"};
}

}  // namespace

// One Watch call. Its state is guarded by the service's mutex: changes of status are rare, and one
// lock makes each watcher see them in the same order.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService& service, std::string name) : service_(service), name_(std::move(name)) {}

  // Sends the status unless it is what the caller knows already. While a message is on its way,
  // OnWriteDone sends the latest.
  void Tell(ServingStatus status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_.mutex_) {
    if (finished_ || writing_ || sent_ == status) return;
    sent_ = status;
    writing_ = true;
    message_.set_status(status);
    StartWrite(&message_);
  }

  void FinishOnce(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_.mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(status);
  }

  // Tells the compiler that the service, whose mutex is held, is this watcher's.
  void AssertLocked() const ABSL_ASSERT_EXCLUSIVE_LOCK(service_.mutex_) {
    service_.mutex_.AssertHeld();
  }

  const std::string& name() const { return name_; }

 private:
  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&service_.mutex_);
    writing_ = false;
    if (!ok) {
      FinishOnce(grpc::Status(grpc::StatusCode::CANCELLED, "the caller left"));
    } else {
      Tell(service_.StatusOf(name_));
    }
  }

  void OnCancel() override {
    absl::MutexLock lock(&service_.mutex_);
    FinishOnce(grpc::Status(grpc::StatusCode::CANCELLED, "the caller left"));
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&service_.mutex_);
      service_.watchers_.erase(this);
    }
    delete this;
  }

  HealthService& service_;
  const std::string name_;
  HealthCheckResponse message_;
  std::optional<ServingStatus> sent_ ABSL_GUARDED_BY(service_.mutex_);
  bool writing_ ABSL_GUARDED_BY(service_.mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(service_.mutex_) = false;
};

HealthService::HealthService(std::vector<std::string> services)
    : services_(WithWholeServer(std::move(services))) {}
HealthService::~HealthService() = default;

void HealthService::SetServing(bool serving) {
  absl::MutexLock lock(&mutex_);
  serving_ = serving && !shut_down_;
  TellWatchers();
}

void HealthService::Shutdown() {
  absl::MutexLock lock(&mutex_);
  serving_ = false;
  shut_down_ = true;
  TellWatchers();
  for (Watcher* watcher : watchers_) {
    watcher->AssertLocked();
    watcher->FinishOnce(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down"));
  }
}

HealthService::ServingStatus HealthService::StatusOf(const std::string& service) const {
  if (!services_.contains(service)) return HealthCheckResponse::SERVICE_UNKNOWN;
  return serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::TellWatchers() {
  for (Watcher* watcher : watchers_) {
    watcher->AssertLocked();
    watcher->Tell(StatusOf(watcher->name()));
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  const ServingStatus status = StatusOf(request->service());
  if (IsTooLong(request->service())) {
    reactor->Finish(TooLong());
  } else if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such service on this server"));
  } else {
    response->set_status(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/, const HealthCheckRequest* request) {
  auto* const watcher = new Watcher(*this, request->service());
  absl::MutexLock lock(&mutex_);
  watchers_.insert(watcher);
  watcher->AssertLocked();
  if (IsTooLong(request->service())) {
    watcher->FinishOnce(TooLong());
  } else if (shut_down_) {
    watcher->FinishOnce(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down"));
  } else {
    watcher->Tell(StatusOf(watcher->name()));
  }
  return watcher;
}

}  // namespace attend

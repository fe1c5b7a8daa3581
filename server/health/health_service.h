// grpc.health.v1.Health: what probes, load balancers and clients ask before they send calls.
#ifndef ATTEND_SERVER_HEALTH_HEALTH_SERVICE_H_
#define ATTEND_SERVER_HEALTH_HEALTH_SERVICE_H_

#include <grpcpp/grpcpp.h>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attend {

// All services of this process share one status, since they share the engine; the empty name stands
// for the server as a whole. NOT_SERVING until SetServing says otherwise.
// Thread-safety: safe from any thread. Must outlive the gRPC server.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // `services`: the full names of what is served here.
  explicit HealthService(std::vector<std::string> services);
  ~HealthService() override;

  // Tells all watchers.
  void SetServing(bool serving) ABSL_LOCKS_EXCLUDED(mutex_);

  // Says NOT_SERVING from now on, ends every watch with UNAVAILABLE and refuses new ones, so that
  // no watcher keeps the server's shutdown waiting.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

  // NOT_FOUND for a name that is not served here.
  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;

  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

  ServingStatus StatusOf(const std::string& service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellWatchers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::flat_hash_set<std::string> services_;
  absl::Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  // Each removes and deletes itself when gRPC is done with it.
  absl::flat_hash_set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend

#endif  // ATTEND_SERVER_HEALTH_HEALTH_SERVICE_H_

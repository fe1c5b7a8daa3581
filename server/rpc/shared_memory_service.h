// attend.v1.SharedMemoryService over gRPC's callback API.
#ifndef ATTEND_SERVER_RPC_SHARED_MEMORY_SERVICE_H_
#define ATTEND_SERVER_RPC_SHARED_MEMORY_SERVICE_H_

#include <functional>
#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "attend/v1/shared_memory.grpc.pb.h"
#include "attend/v1/shared_memory.pb.h"
#include "server/observe/metrics.h"
#include "server/schedule/clock.h"
#include "server/shared_memory/shared_memory_registry.h"

namespace attend {

// The pointers must outlive the gRPC server.
struct SharedMemoryServiceOptions {
  SharedMemoryRegistry* registry = nullptr;  // null: the server does not offer shared memory
  Metrics* metrics = nullptr;                // must not be null, nor the clock
  Clock* clock = nullptr;
};

// Whether whoever made the call runs on this host.
bool IsOverUnixSocket(const grpc::ServerContextBase& context);

// Handlers answer at once: they open and close files of shared memory, and wait for nothing.
// Thread-safety: safe from any thread.
class SharedMemoryService final : public v1::SharedMemoryService::CallbackService {
 public:
  explicit SharedMemoryService(const SharedMemoryServiceOptions& options) : options_(options) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterSharedMemoryRequest* request,
                                     v1::RegisterSharedMemoryResponse* response) override;

  grpc::ServerUnaryReactor* Unregister(grpc::CallbackServerContext* context,
                                       const v1::UnregisterSharedMemoryRequest* request,
                                       v1::UnregisterSharedMemoryResponse* response) override;

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetSharedMemoryStatusRequest* request,
                                      v1::SharedMemoryStatus* response) override;

 private:
  // Answers and counts a call of which `handle` makes the response.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Answer(Method method, grpc::CallbackServerContext& context,
                                   const Request& request, const Response& response,
                                   const std::function<absl::Status()>& handle);

  const SharedMemoryServiceOptions options_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_SHARED_MEMORY_SERVICE_H_

#include "server/rpc/shared_memory_service.h"

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "server/rpc/retry_delay.h"
#include "server/wire/shared_memory_range.h"
#include "server/wire/status.h"

namespace attend {

bool IsOverUnixSocket(const grpc::ServerContextBase& context) {
  return absl::StartsWith(context.peer(), "unix:");
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* SharedMemoryService::Answer(Method method,
                                                      grpc::CallbackServerContext& context,
                                                      const Request& request,
                                                      const Response& response,
                                                      const std::function<absl::Status()>& handle) {
  const absl::Time arrival = options_.clock->Now();
  options_.metrics->RequestStarted(method);
  const absl::Duration retry_delay = RetryDelay();
  grpc::Status answer;
  try {
    absl::Status status = CheckSharedMemoryAccess(
        {.registry = options_.registry, .over_unix_socket = IsOverUnixSocket(context)},
        "shared_memory");
    if (status.ok()) status = handle();
    answer = ToGrpcStatus(status, retry_delay);
  } catch (const std::bad_alloc&) {
    answer = OutOfMemory();
  }
  AddPushback(answer, retry_delay, context);
  RequestRecord record;
  record.code = answer.error_code();
  record.total_seconds = absl::ToDoubleSeconds(options_.clock->Now() - arrival);
  record.received_bytes = static_cast<std::int64_t>(request.ByteSizeLong());
  if (answer.ok()) record.sent_bytes = static_cast<std::int64_t>(response.ByteSizeLong());
  options_.metrics->RequestFinished(method, record);
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(std::move(answer));
  return reactor;
}

grpc::ServerUnaryReactor* SharedMemoryService::Register(
    grpc::CallbackServerContext* context, const v1::RegisterSharedMemoryRequest* request,
    v1::RegisterSharedMemoryResponse* response) {
  return Answer(Method::kRegisterSharedMemory, *context, *request, *response, [&] {
    absl::StatusOr<std::string> handle =
        options_.registry->Register(request->name(), request->size_bytes());
    if (!handle.ok()) return handle.status();
    response->set_handle(*std::move(handle));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SharedMemoryService::Unregister(
    grpc::CallbackServerContext* context, const v1::UnregisterSharedMemoryRequest* request,
    v1::UnregisterSharedMemoryResponse* response) {
  return Answer(Method::kUnregisterSharedMemory, *context, *request, *response,
                [&] { return options_.registry->Unregister(request->handle()); });
}

grpc::ServerUnaryReactor* SharedMemoryService::GetStatus(
    grpc::CallbackServerContext* context, const v1::GetSharedMemoryStatusRequest* request,
    v1::SharedMemoryStatus* response) {
  return Answer(Method::kGetSharedMemoryStatus, *context, *request, *response, [&] {
    const absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> region =
        options_.registry->Find(request->handle(), "handle");
    if (!region.ok()) return region.status();
    response->set_size_bytes((*region)->size_bytes());
    response->set_read_bytes((*region)->read_bytes());
    response->set_written_bytes((*region)->written_bytes());
    return absl::OkStatus();
  });
}

}  // namespace attend

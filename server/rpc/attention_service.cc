#include "server/rpc/attention_service.h"

#include <utility>

#include "absl/time/time.h"
#include "server/rpc/attend_call.h"

namespace attend {

AttentionService::AttentionService(AttentionServiceOptions options)
    : options_(std::move(options)) {}

grpc::ServerUnaryReactor* AttentionService::Attend(grpc::CallbackServerContext* context,
                                                   const v1::AttendRequest* request,
                                                   v1::AttendResponse* response) {
  auto* call = new AttendCall(options_, context, request, response);
  call->Start();
  return call;
}

grpc::ServerUnaryReactor* AttentionService::GetServerInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetServerInfoRequest* request,
                                                          v1::ServerInfo* response) {
  const absl::Time arrival = options_.clock->Now();
  options_.metrics->RequestStarted(Method::kGetServerInfo);
  *response = options_.info;
  RequestRecord record;
  record.total_seconds = absl::ToDoubleSeconds(options_.clock->Now() - arrival);
  record.received_bytes = static_cast<std::int64_t>(request->ByteSizeLong());
  record.sent_bytes = static_cast<std::int64_t>(response->ByteSizeLong());
  options_.metrics->RequestFinished(Method::kGetServerInfo, record);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace attend

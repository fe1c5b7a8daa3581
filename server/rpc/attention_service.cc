#include "server/rpc/attention_service.h"

#include <new>
#include <spdlog/logger.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/rpc/attend_call.h"
#include "server/rpc/attend_stream.h"
#include "server/rpc/retry_delay.h"
#include "server/wire/status.h"
#include "server/wire/unknown_fields.h"

namespace attend {

AttentionService::AttentionService(AttentionServiceOptions options)
    : options_(std::move(options)),
      send_watch_(options_.max_send_time,
                  [this](const grpc::CallbackServerContext& context) { NoteLateAnswer(context); }) {
  // Protobuf makes what it shows of a message without unknown fields at the first look: now, while
  // one thread is here, in a way that ThreadSanitizer understands, and while there is memory.
  (void)RefuseUnknownFields(v1::AttendRequest::default_instance(), "request");
  (void)RefuseUnknownFields(v1::Tensor::default_instance(), "tensor");
  // The same for what Abseil keeps of the kernel's random numbers: refusals throw nothing.
  (void)RetryDelay();
}

namespace {

// Answers a call of Attend for which no reactor could be made, with gRPC's own, which has its
// memory.
grpc::ServerUnaryReactor* RefuseForMemory(Metrics& metrics, grpc::CallbackServerContext& context) {
  RequestRecord record;
  record.code = grpc::StatusCode::RESOURCE_EXHAUSTED;
  metrics.RequestStarted(Method::kAttend);
  metrics.RequestFinished(Method::kAttend, record);
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(OutOfMemory());
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* AttentionService::Attend(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  AttendCall* call = nullptr;
  try {
    call = new AttendCall(options_, send_watch_, context, response);
  } catch (const std::bad_alloc&) {
    return RefuseForMemory(*options_.metrics, *context);
  }
  // gRPC made the buffer, as no constant, for this call alone, and would keep the message until the
  // call has ended.
  call->Start(const_cast<grpc::ByteBuffer&>(*request));
  return call;
}

grpc::ServerUnaryReactor* AttentionService::GetServerInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetServerInfoRequest* request,
                                                          v1::ServerInfo* response) {
  const absl::Time arrival = options_.clock->Now();
  *response = options_.info;  // which may throw: counted only afterwards
  options_.metrics->RequestStarted(Method::kGetServerInfo);
  RequestRecord record;
  record.total_seconds = absl::ToDoubleSeconds(options_.clock->Now() - arrival);
  record.received_bytes = static_cast<std::int64_t>(request->ByteSizeLong());
  record.sent_bytes = static_cast<std::int64_t>(response->ByteSizeLong());
  options_.metrics->RequestFinished(Method::kGetServerInfo, record);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttentionService::AttendStream(
    grpc::CallbackServerContext* context) {
  return attend::AttendStream::Open(options_, send_watch_, *context, open_streams_);
}

grpc::ServerUnaryReactor* AttentionService::Estimate(grpc::CallbackServerContext* context,
                                                     const v1::AttendRequest* /*request*/,
                                                     v1::Cost* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(NotOffered(Method::kEstimate, "Estimate"));
  return reactor;
}

void AttentionService::NoteLateAnswer(const grpc::CallbackServerContext& context) const {
  options_.metrics->AnswerNotTaken();
  if (!options_.logger->should_log(spdlog::level::debug)) return;
  try {
    options_.logger->debug("a call from {} ends: its answer was not taken within {}",
                           context.peer(), absl::FormatDuration(options_.max_send_time));
  } catch (const std::bad_alloc&) {
    // It ends without the line.
  }
}

grpc::Status AttentionService::NotOffered(Method method, const char* name) const {
  options_.metrics->RequestStarted(method);
  RequestRecord record;
  record.code = grpc::StatusCode::UNIMPLEMENTED;
  options_.metrics->RequestFinished(method, record);
  return {record.code, absl::StrCat(name, " is not offered by this server; use Attend")};
}

}  // namespace attend

#include "server/rpc/attend_call.h"

#include <new>
#include <utility>

#include "server/rpc/retry_delay.h"

namespace attend {

AttendCall::AttendCall(const AttentionServiceOptions& options, SendWatch& watch,
                       grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
    : AttendJob(options, Method::kAttend),
      options_(options),
      watch_(watch),
      context_(context),
      response_(response),
      sending_(*context) {}

void AttendCall::Start(grpc::ByteBuffer& request) {
  CallFacts facts;
  absl::Status status;
  try {
    facts = CallFacts::Of(*context_, options_);
    if (facts.trace.has_value()) {
      context_->AddTrailingMetadata(kTraceMetadata, AnswerTraceParent(*facts.trace));
    }
    // Where a caller leaves before its message has arrived there is none, not an empty one.
    status = request.Valid() ? Read(request)
                             : absl::CancelledError("the call ended before its message had come");
  } catch (const std::bad_alloc&) {
    status = BareNoMemory();
  }
  AttendJob::Start(status, facts);
}

void AttendCall::OnAnswer(AttendAnswer& answer) {
  AddPushback(answer.status, answer.retry_delay, *context_);
  response_->Swap(&answer.message);
  watch_.Begin(sending_);
  Finish(std::move(answer.status));  // gRPC may destroy this now
}

void AttendCall::OnDone() {
  watch_.End(sending_);
  delete this;
}

}  // namespace attend

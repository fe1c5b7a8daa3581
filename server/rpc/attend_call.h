// One call of Attend.
#ifndef ATTEND_SERVER_RPC_ATTEND_CALL_H_
#define ATTEND_SERVER_RPC_ATTEND_CALL_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/attend_job.h"
#include "server/rpc/attention_service.h"
#include "server/rpc/send_watch.h"

namespace attend {

// Carries one request and its answer between gRPC and a job. gRPC keeps it, the request and the
// response alive until OnDone, which comes after Start's handler has returned and after OnCancel,
// if any.
class AttendCall final : public grpc::ServerUnaryReactor, private AttendJob {
 public:
  // `options` and `watch` must outlive the object.
  AttendCall(const AttentionServiceOptions& options, SendWatch& watch,
             grpc::CallbackServerContext* context, grpc::ByteBuffer* response);

  // Takes the request out of `request` and answers it, now or later. To be called once, by the
  // handler.
  void Start(grpc::ByteBuffer& request);

 private:
  void OnAnswer(AttendAnswer& answer) override;
  void OnCancel() override { Cancel(); }
  void OnDone() override;

  const AttentionServiceOptions& options_;
  SendWatch& watch_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  SendWatch::Sending sending_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_ATTEND_CALL_H_

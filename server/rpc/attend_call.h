// One Attend call, from its arrival to its answer.
#ifndef ATTEND_SERVER_RPC_ATTEND_CALL_H_
#define ATTEND_SERVER_RPC_ATTEND_CALL_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attend/v1/attention.pb.h"
#include "core/base/attention_problem.h"
#include "server/rpc/attention_service.h"
#include "server/schedule/scheduler.h"

namespace attend {

// The one owner of the call's state. It finishes the call exactly once: from Start where the call
// is refused, else from the scheduler's on_done. gRPC keeps it, the request and the response alive
// until OnDone, which comes after Start's handler has returned and after OnCancel, if any.
class AttendCall final : public grpc::ServerUnaryReactor {
 public:
  AttendCall(const AttentionServiceOptions& options, grpc::CallbackServerContext* context,
             const v1::AttendRequest* request, v1::AttendResponse* response);

  // Checks the request and submits it. To be called once, by the handler.
  void Start();

 private:
  void OnCancel() override;
  void OnDone() override { delete this; }

  absl::Status Submit();
  absl::StatusOr<AttentionProblem> MakeProblem() const;
  absl::StatusOr<Priority> GetPriority() const;
  // The earlier of the call's own deadline and the request's timeout, on the scheduler's clock.
  absl::StatusOr<absl::Time> GetDeadline() const;

  // `problem`: of a call that was submitted; null otherwise.
  void FinishWith(const absl::Status& status, const TaskStats& stats,
                  const AttentionProblem* problem);
  void Record(grpc::StatusCode code, const TaskStats& stats, const AttentionProblem* problem) const;
  // One line, at debug.
  void Log(grpc::StatusCode code, const TaskStats& stats, const AttentionProblem* problem) const;

  const AttentionServiceOptions& options_;
  grpc::CallbackServerContext* const context_;
  const v1::AttendRequest* const request_;
  v1::AttendResponse* const response_;
  const absl::Time arrival_;
  TaskId task_id_ = 0;  // 0: never submitted. Written by the handler, read by OnCancel after it.
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_ATTEND_CALL_H_

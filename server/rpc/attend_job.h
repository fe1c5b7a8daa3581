// One request for attention, from its bytes to the bytes of its answer.
#ifndef ATTEND_SERVER_RPC_ATTEND_JOB_H_
#define ATTEND_SERVER_RPC_ATTEND_JOB_H_

#include <atomic>
#include <cstdint>
#include <grpcpp/grpcpp.h>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attend/v1/attention.pb.h"
#include "core/base/attention_problem.h"
#include "server/observe/metrics.h"
#include "server/rpc/attention_service.h"
#include "server/rpc/trace_context.h"
#include "server/schedule/scheduler.h"
#include "server/wire/attend_response.h"
#include "server/wire/received_request.h"

namespace attend {

// What a call says of its requests beside their messages.
struct CallFacts {
  absl::Time deadline = absl::InfiniteFuture();  // on the scheduler's clock
  std::optional<std::string> priority;           // the value of x-attend-priority
  SharedMemoryAccess shared_memory;
  std::optional<TraceContext> trace;

  static CallFacts Of(const grpc::CallbackServerContext& context,
                      const AttentionServiceOptions& options);
};

struct AttendAnswer {
  grpc::Status status;
  // OK: an AttendResponse, or on a stream an AttendStreamResponse.
  grpc::ByteBuffer message;
  // RESOURCE_EXHAUSTED: when to come back.
  absl::Duration retry_delay;
};

// What is said without memory for a text: a job puts the text in where there is some again.
absl::Status BareNoMemory();

// Reads a message, checks it, has it computed and makes the answer; counts and logs it, once. What
// carries the bytes, a call or a stream, derives from it. Want of memory, at whatever moment, is
// answered with RESOURCE_EXHAUSTED: nothing here throws.
// Thread-safety: Read, then Start, once each; Cancel at any time from any thread.
class AttendJob {
 public:
  AttendJob(const AttendJob&) = delete;
  AttendJob& operator=(const AttendJob&) = delete;

  // Takes the message out of `message`. The request arrives now.
  // Errors: INVALID_ARGUMENT for bytes that are no request; RESOURCE_EXHAUSTED for want of memory.
  absl::Status Read(grpc::ByteBuffer& message);

  // Submits what was read, or where `so_far` is an error answers with that. OnAnswer is called
  // exactly once, perhaps before Start returns: the object must live until both have returned.
  void Start(const absl::Status& so_far, const CallFacts& facts);

  // Gives the request up: it is answered with CANCELLED unless its answer is on its way.
  void Cancel();

 protected:
  // `method` is what the request counts as. `options` must outlive the object.
  AttendJob(const AttentionServiceOptions& options, Method method);
  ~AttendJob() = default;

  const ReceivedRequest& received() const { return received_; }

  // The answer, to be taken out of `answer`. Called from any thread; must not block; nothing
  // touches the object afterwards but Start, if it is still running, and Cancel.
  virtual void OnAnswer(AttendAnswer& answer) = 0;

 private:
  absl::Status Submit(const CallFacts& facts);
  // Of a request that the scheduler never saw.
  void CountNoMemory(v1::Priority requested, const CallFacts& facts) const;
  absl::StatusOr<AttentionProblem> MakeProblem(const SharedMemoryAccess& access);
  absl::StatusOr<absl::Time> GetDeadline(const CallFacts& facts) const;

  // `problem`: of a request that was submitted; null otherwise.
  void FinishWith(const absl::Status& computed, const TaskStats& stats,
                  const AttentionProblem* problem);
  // Throws std::bad_alloc.
  void MakeAnswer(const absl::Status& computed, const TaskStats& stats,
                  const AttentionProblem* problem, AttendAnswer& answer);
  grpc::ByteBuffer MakeMessage(const TaskStats& stats, const AttentionProblem& problem);
  void Record(const AttendAnswer& answer, const TaskStats& stats,
              const AttentionProblem* problem) const;
  // One line, at debug, or of a sample at info; none without memory for it.
  void Log(grpc::StatusCode code, const TaskStats& stats, const AttentionProblem* problem) const;

  const AttentionServiceOptions& options_;
  const Method method_;
  const absl::Time arrival_;
  std::string trace_id_;  // empty: none
  ReceivedRequest received_;
  ResponseMessage response_;
  // Start sets the one and then looks at the other, Cancel the other way round: one of them sees
  // both.
  std::atomic<TaskId> task_id_{0};  // 0: not submitted yet
  std::atomic<bool> cancelled_{false};
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_ATTEND_JOB_H_

// One call of AttendStream: many requests in flight, answered as they finish.
#ifndef ATTEND_SERVER_RPC_ATTEND_STREAM_H_
#define ATTEND_SERVER_RPC_ATTEND_STREAM_H_

#include <cstdint>
#include <deque>
#include <grpcpp/grpcpp.h>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/rpc/attend_job.h"
#include "server/rpc/attention_service.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/send_watch.h"

namespace attend {

// Carries requests and answers between gRPC and jobs. It reads one message after the other while
// fewer than max_stream_requests wait for their answer or their answer for the caller, and writes
// the answers one after the other.
//
// It ends, once nothing is in flight any more:
//   - with OK after the caller's last message, every answer written;
//   - with RESOURCE_EXHAUSTED where there is no memory to read a message or even for an error:
//     what is in flight is given up and not answered;
//   - with INVALID_ARGUMENT after a message that is no request and after an id that is in flight
//     already: what is in flight is given up and not answered;
//   - with UNAVAILABLE after Drain, every answer written: what was not read by then is not
//   answered;
//   - when the caller has gone, the call's deadline has passed or an answer is not taken in time:
//     what is in flight is given up.
//
// Thread-safety: gRPC, the scheduler and Drain call from any thread. No lock is held while gRPC or
// the scheduler is called, and one thread at a time calls gRPC (see Proceed).
class AttendStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public std::enable_shared_from_this<AttendStream> {
 public:
  // Begins to read. The stream owns itself until gRPC is done with it; `options`, `watch` and
  // `open` must outlive that.
  static AttendStream* Open(const AttentionServiceOptions& options, SendWatch& watch,
                            grpc::CallbackServerContext& context, OpenStreams& open);

  // Reads no more, and ends once what is in flight is answered.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // One request; see attend_stream.cc.
  class Request;
  using RequestPtr = std::shared_ptr<Request>;

  AttendStream(const AttentionServiceOptions& options, SendWatch& watch,
               grpc::CallbackServerContext& context, OpenStreams& open);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override;

  // What a message asks for. Nothing from here on throws for want of memory.
  void Handle(grpc::ByteBuffer& message) ABSL_LOCKS_EXCLUDED(mutex_);
  void CancelRequest(std::uint64_t id) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the request in, unless its id is in flight.
  absl::Status Admit(const RequestPtr& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the request out, and its answer in; false without memory for it.
  bool Enqueue(Request& request, AttendAnswer& answer) ABSL_LOCKS_EXCLUDED(mutex_);
  // From whatever thread has a request's answer.
  void Answered(Request& request, AttendAnswer& answer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives up what is in flight and ends the stream with `status`, unless it has an end already.
  void End(grpc::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  // Does what is to be done: reads, writes, finishes. Whoever changes the state calls it.
  void Proceed() ABSL_LOCKS_EXCLUDED(mutex_);
  struct Todo;
  Todo NextTodo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayRead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayFinish() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status TakeFinalStatus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AttentionServiceOptions& options_;
  const CallFacts facts_;
  SendWatch& watch_;
  OpenStreams& open_;
  std::shared_ptr<AttendStream> self_;  // until OnDone

  // gRPC's between the start of a read or write and its end; else of whoever Proceeds or Handles.
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  SendWatch::Sending sending_;  // of what is outgoing

  absl::Mutex mutex_;
  // By id. Abseil's maps do not survive it when memory runs out while they grow.
  std::map<std::uint64_t, RequestPtr> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::deque<grpc::ByteBuffer> answers_ ABSL_GUARDED_BY(mutex_);  // that wait to be written
  bool proceeding_ ABSL_GUARDED_BY(mutex_) = false;               // a thread is in Proceed's loop
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;   // from the start of a read until it is handled
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;  // a message is being handled
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_written_ ABSL_GUARDED_BY(mutex_) = false;  // a write has begun
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more comes
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);  // decided before its time
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_ATTEND_STREAM_H_

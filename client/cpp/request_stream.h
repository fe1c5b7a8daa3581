// One call of AttendStream, as the caller has it.
#ifndef ATTEND_CLIENT_CPP_REQUEST_STREAM_H_
#define ATTEND_CLIENT_CPP_REQUEST_STREAM_H_

#include <cstdint>
#include <deque>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "attend/v1/attention.grpc.pb.h"
#include "client/cpp/calls_in_flight.h"
#include "client/cpp/carrier.h"

namespace attend::client_internal {

// Writes requests one after the other and hands their answers out as they come, until the stream
// breaks or the server ends it; then it ends what is in flight.
//
// Thread-safety: safe from any thread. No lock is held while gRPC or an attempt is called.
class RequestStream final
    : public grpc::ClientBidiReactor<v1::AttendStreamRequest, v1::AttendStreamResponse>,
      public std::enable_shared_from_this<RequestStream> {
 public:
  // Starts the call, which is in `calls` until its last attempt has ended. It keeps itself alive
  // until then.
  static std::shared_ptr<RequestStream> Open(v1::AttentionService::Stub& stub,
                                             std::shared_ptr<CallsInFlight> calls);

  // True once it takes no attempts any more.
  bool ended() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes the attempt in, and returns its id; nothing if the stream has ended.
  std::optional<std::uint64_t> Send(const std::shared_ptr<Attempt>& attempt)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Of a stream that has ended: ends the attempt, which is not sent, with what ended the stream, at
  // once or when that is known.
  void EndWith(const std::shared_ptr<Attempt>& attempt) ABSL_LOCKS_EXCLUDED(mutex_);

  // Gives an attempt up. One that waits to be written ends at once, one that has been written when
  // the server has answered, or the stream has ended. Does nothing for one that has ended.
  void Cancel(std::uint64_t id) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct InFlight {
    std::shared_ptr<Attempt> attempt;
    bool begun = false;  // it is being written, or has been
    bool sent = false;   // it has been written
  };
  struct Outgoing {
    std::uint64_t id = 0;
    bool cancel = false;  // the request with the id, rather than send it
  };

  explicit RequestStream(std::shared_ptr<CallsInFlight> calls) : calls_(std::move(calls)) {}

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Writes what waits, if nothing is being written.
  void WriteNext() ABSL_LOCKS_EXCLUDED(mutex_);
  // The message for what is first in the queue, which leaves it.
  const v1::AttendStreamRequest* TakeOutgoing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(v1::AttendStreamResponse& answer) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<CallsInFlight> calls_;
  CallContext context_;
  std::shared_ptr<RequestStream> self_;  // until OnDone

  v1::AttendStreamResponse incoming_;  // gRPC's while it reads

  mutable absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);  // once OnDone has come
  bool held_ ABSL_GUARDED_BY(mutex_) = true;  // gRPC waits with OnDone for a RemoveHold
  int starting_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that are about to start a write
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  Outgoing current_ ABSL_GUARDED_BY(mutex_);                          // what is being written
  std::shared_ptr<Attempt> current_attempt_ ABSL_GUARDED_BY(mutex_);  // whose message is
  // An answer to what is being written, which gRPC still has in its hands.
  std::optional<v1::AttendStreamResponse> early_answer_ ABSL_GUARDED_BY(mutex_);
  v1::AttendStreamRequest cancel_;  // gRPC's while it is being written
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::uint64_t, InFlight> in_flight_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_REQUEST_STREAM_H_

// A limit to the time that callers may take to take their answers.
#ifndef ATTEND_SERVER_RPC_SEND_WATCH_H_
#define ATTEND_SERVER_RPC_SEND_WATCH_H_

#include <cstdint>
#include <functional>
#include <grpcpp/server_context.h>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/rpc/periodic_alarm.h"

namespace attend {

// Ends calls whose answers stay with gRPC for too long: they hold memory of the pool that all
// callers share. One alarm looks at all of them; what is sent costs a short lock at its begin and
// another one at its end.
// Thread-safety: safe from any thread.
class SendWatch {
 public:
  // An answer that gRPC has and its caller has not. It belongs to a call, and is watched from Begin
  // to End.
  class Sending {
   public:
    // `context` must live until End.
    explicit Sending(grpc::CallbackServerContext& context) : context_(context) {}
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

   private:
    friend class SendWatch;
    grpc::CallbackServerContext& context_;
    // All guarded by the watch's mutex.
    Sending* newer_ = nullptr;
    Sending* older_ = nullptr;
    std::int64_t look_ = 0;  // the last one before it began
    bool watched_ = false;
  };

  using OnLate = std::function<void(const grpc::CallbackServerContext&)>;

  // A call is ended once its answer has been on its way for `limit`, at most a quarter of it later;
  // limits under 40 ms count as 40 ms. 0 = no limit. `on_late`, which may be empty, is told
  // before, on a thread of gRPC's, and must not block nor throw.
  SendWatch(absl::Duration limit, OnLate on_late);
  // Nothing may be watched any more.
  ~SendWatch() = default;
  SendWatch(const SendWatch&) = delete;
  SendWatch& operator=(const SendWatch&) = delete;

  // To be called before gRPC gets the answer.
  void Begin(Sending& sending) ABSL_LOCKS_EXCLUDED(mutex_);

  // To be called once gRPC says that it is through with the answer, and while the call lives: waits
  // where the call is being ended at this moment.
  void End(Sending& sending) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);
  // The oldest if it is late, as what is being ended now; null if there is none.
  Sending* TakeLate() ABSL_LOCKS_EXCLUDED(mutex_);
  void Unlink(Sending& sending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const OnLate on_late_;
  const bool has_limit_;
  absl::Mutex mutex_;
  // All have the same time, so the oldest is the first to be late.
  Sending* newest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Sending* oldest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::int64_t num_looks_ ABSL_GUARDED_BY(mutex_) = 0;
  const Sending* ending_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread::id ender_ ABSL_GUARDED_BY(mutex_);
  std::optional<PeriodicAlarm> alarm_;  // none without a limit; stops before the rest goes
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_SEND_WATCH_H_

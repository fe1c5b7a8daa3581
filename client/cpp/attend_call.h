// A call of Attend that makes its attempts itself.
#ifndef ATTEND_CLIENT_CPP_ATTEND_CALL_H_
#define ATTEND_CLIENT_CPP_ATTEND_CALL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "attend/v1/attention.pb.h"
#include "client/cpp/calls_in_flight.h"
#include "client/cpp/carrier.h"
#include "client/cpp/client.h"
#include "client/cpp/client_options.h"
#include "client/cpp/shared_memory.h"
#include "client/cpp/timers.h"

namespace attend::client_internal {

// What the calls of a client share. All of it must outlive them.
struct CallEnvironment {
  const ClientOptions& options;
  Timers& timers;
  SharedMemory* memory;  // null: none
  CallsInFlight& calls;
};

// From the arguments to the callback: attempts, one after the other, until one has succeeded or no
// further one is allowed, the time is over, or the call is given up. The callback is called then;
// the attempt that may still be going on is given up, and ends on its own. Until it has, the call
// is among the calls in flight, and keeps its slice of shared memory.
//
// Thread-safety: Fill, then Begin, once each; all else from any thread. No lock is held while a
// carrier, the memory or the callback is called.
class AttendCall final : public Attempt,
                         public Cancellable,
                         public std::enable_shared_from_this<AttendCall> {
 public:
  // `call_options` must have passed CheckCallOptions.
  AttendCall(const CallEnvironment& environment, Carrier& carrier, const CallOptions& call_options);

  // Makes the request. Errors: as FillRequest, and RESOURCE_EXHAUSTED for a message, or an answer,
  // past the client's limit.
  absl::Status Fill(const AttentionArgs& args);

  void Begin(Client::AttendCallback callback);

  void Cancel() override ABSL_LOCKS_EXCLUDED(mutex_);

  v1::AttendStreamRequest& message() override { return message_; }
  const CallOptions& options() const override { return call_options_; }
  std::optional<std::chrono::nanoseconds> time_left() const override;
  void OnEnd(AttemptEnd end) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Clock = Timers::Clock;

  void StartAttempt() ABSL_LOCKS_EXCLUDED(mutex_);
  // Once the server knows the shared memory, if there is any.
  void Send() ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsWanted() ABSL_LOCKS_EXCLUDED(mutex_);
  // False if the call is over, or to be.
  bool AttemptAgain(std::chrono::milliseconds delay) ABSL_LOCKS_EXCLUDED(mutex_);
  // How long to wait for the next attempt; nothing if there is none.
  std::optional<std::chrono::milliseconds> NextAttempt(const AttemptEnd& end,
                                                       const absl::Status& status);
  std::chrono::milliseconds Backoff() const;
  // Makes the request fit for another attempt.
  absl::Status PrepareNext(const AttemptEnd& end, const absl::Status& status);
  // Calls back, unless that was done.
  void End(absl::StatusOr<AttendResult> result) ABSL_LOCKS_EXCLUDED(mutex_);
  // Leaves the calls in flight, once nothing goes on any more.
  void LeaveIfOver() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndAt(Clock::time_point time, absl::Status status, Timers::Id* timer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CallEnvironment environment_;
  Carrier& carrier_;
  const CallOptions call_options_;
  const std::optional<Clock::time_point> deadline_;
  std::shared_ptr<AttendCall> self_;  // while among the calls in flight

  // Of the one thread that makes, starts or ends an attempt.
  v1::AttendStreamRequest message_;
  SharedSlice slice_;
  std::int64_t message_bytes_ = 0;
  int failures_ = 0;      // attempts that count
  int unsent_ = 0;        // attempts that found no server, while one is waited for
  bool renewed_ = false;  // after the server had forgotten the shared memory

  absl::Mutex mutex_;
  Client::AttendCallback callback_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t attempt_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the last one
  bool attempting_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;        // the callback is being called, or has been
  bool called_back_ ABSL_GUARDED_BY(mutex_) = false;  // it has returned
  std::function<void()> give_up_ ABSL_GUARDED_BY(mutex_);  // the attempt that goes on
  Timers::Id deadline_timer_ ABSL_GUARDED_BY(mutex_);
  Timers::Id attempt_timer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_ATTEND_CALL_H_

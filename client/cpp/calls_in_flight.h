// What of a client has not finished, and can be given up.
#ifndef ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_
#define ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_

#include <grpcpp/client_context.h>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace attend::client_internal {

// Something that goes on by itself. Thread-safety: safe from any thread.
class Cancellable {
 public:
  virtual ~Cancellable() = default;
  // Gives it up. Does nothing for what has finished.
  virtual void Cancel() = 0;
};

// The context of a call that others may cancel while it ends. Thread-safety: safe from any thread.
class CallContext final : public Cancellable {
 public:
  // For the call itself, until Release.
  grpc::ClientContext* get() { return context_.get(); }

  void Cancel() override {
    absl::MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

  // Lets go of gRPC's context, and so of the channel, which nothing but the context may hold by
  // then: a channel that goes on a thread of gRPC's would wait for that very thread to end.
  void Release() {
    absl::MutexLock lock(&mutex_);
    context_.reset();
  }

 private:
  absl::Mutex mutex_;
  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();
};

// Thread-safety: safe from any thread. Shared by the calls themselves, so that the last one may
// still leave it while its client is going away.
class CallsInFlight {
 public:
  void Add(Cancellable* call) {
    absl::MutexLock lock(&mutex_);
    calls_.insert(call);
  }

  // After the call has let go of its context: who waits for the last call may let the channels go.
  void Remove(Cancellable* call) {
    absl::MutexLock lock(&mutex_);
    calls_.erase(call);
  }

  void CancelAll() {
    absl::MutexLock lock(&mutex_);
    for (Cancellable* call : calls_) call->Cancel();
  }

  // Until each has been removed.
  void Wait() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](absl::flat_hash_set<Cancellable*>* calls) { return calls->empty(); }, &calls_));
  }

  void CancelAndWait() {
    CancelAll();
    Wait();
  }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_set<Cancellable*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_

// The asynchronous calls of a client that have not finished.
#ifndef ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_
#define ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_

#include <grpcpp/client_context.h>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace attend::client_internal {

// The context of a call that others may cancel while it ends. Thread-safety: safe from any thread.
class CallContext {
 public:
  // For the call itself, until Release.
  grpc::ClientContext* get() { return context_.get(); }

  void Cancel() {
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
  void Add(CallContext* context) {
    absl::MutexLock lock(&mutex_);
    contexts_.insert(context);
  }

  // After Release: who waits for the last call may let the channels go.
  void Remove(CallContext* context) {
    absl::MutexLock lock(&mutex_);
    contexts_.erase(context);
  }

  // Cancels every call and waits until each has been removed.
  void CancelAndWait() {
    absl::MutexLock lock(&mutex_);
    for (CallContext* context : contexts_) context->Cancel();
    mutex_.Await(absl::Condition(
        +[](absl::flat_hash_set<CallContext*>* contexts) { return contexts->empty(); },
        &contexts_));
  }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_set<CallContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_

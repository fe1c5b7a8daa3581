// The asynchronous calls of a client that have not finished.
#ifndef ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_
#define ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_

#include <grpcpp/client_context.h>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace attend::client_internal {

// Thread-safety: safe from any thread. Shared by the calls themselves, so that the last one may
// still leave it while its client is going away.
class CallsInFlight {
 public:
  void Add(grpc::ClientContext* context) {
    absl::MutexLock lock(&mutex_);
    contexts_.insert(context);
  }

  void Remove(grpc::ClientContext* context) {
    absl::MutexLock lock(&mutex_);
    contexts_.erase(context);
  }

  // Cancels every call and waits until each has been removed.
  void CancelAndWait() {
    absl::MutexLock lock(&mutex_);
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    mutex_.Await(absl::Condition(
        +[](absl::flat_hash_set<grpc::ClientContext*>* contexts) { return contexts->empty(); },
        &contexts_));
  }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attend::client_internal

#endif  // ATTEND_CLIENT_CPP_CALLS_IN_FLIGHT_H_

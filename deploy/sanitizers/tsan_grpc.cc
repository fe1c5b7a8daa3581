// Shows ThreadSanitizer the order that gRPC makes between the threads of a call.
//
// Debian builds gRPC without TSan, so what a thread did before it started an operation would look
// unordered with what another does once the operation is complete. Both meet in the functions
// below: every operation is started by the first, and gives up its reference to the call by the
// second before anybody hears of its end; a reactor is cancelled and done by the last two. They
// stand before those of the library, in every program of a TSan build; no other build contains this
// file.
#include <cstdlib>
#include <grpc/grpc.h>
#include <grpcpp/support/server_callback.h>
#include <sanitizer/tsan_interface.h>

#include "deploy/sanitizers/next.h"

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t nops, void* tag,
                                      void* reserved) {
  static const auto next = attend::Next(&grpc_call_start_batch);
  __tsan_release(call);
  return next(call, ops, nops, tag, reserved);
}

void grpc_call_unref(grpc_call* call) {
  static const auto next = attend::Next(&grpc_call_unref);
  __tsan_acquire(call);
  __tsan_release(call);
  next(call);
}
}

namespace grpc::internal {

namespace {

// Runs a reactor's OnCancel, and tells TSan when it has returned.
class ShownCancel final : public ServerReactor {
 public:
  ShownCancel(ServerReactor* reactor, void* count) : reactor_(reactor), count_(count) {}

  void OnCancel() override {
    reactor_->OnCancel();
    __tsan_release(count_);
    delete this;
  }
  void OnDone() override { std::abort(); }  // asked of the reactor itself

 private:
  ServerReactor* const reactor_;
  void* const count_;
};

}  // namespace

// What a reactor's cancellation, and its end, wait for is counted down by our programs and by the
// library; only the former is seen.
void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  static const auto next = attend::Next(&ServerCallbackCall::CallOnCancel);
  __tsan_acquire(&on_cancel_conditions_remaining_);
  const bool trivial = reactor->InternalInlineable();
  (this->*next)(trivial ? reactor : new ShownCancel(reactor, &callbacks_outstanding_));
}

void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  static const auto next = attend::Next(&ServerCallbackCall::ScheduleOnDone);
  __tsan_acquire(&callbacks_outstanding_);
  (this->*next)(inline_ondone);
}

}  // namespace grpc::internal

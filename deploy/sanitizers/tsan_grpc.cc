// Shows ThreadSanitizer the order that gRPC makes between the threads of a call.
//
// Debian builds gRPC without TSan, so what a thread did before it started an operation would look
// unordered with what another does once the operation is complete. Both meet in the functions
// below: every operation is started by the first, and gives up its reference to the call by the
// second before anybody hears of its end; a reactor is done by the third. They stand before those
// of the library, in every program of a TSan build; no other build contains this file.
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

// The count of what a reactor waits for is given back by our programs and by the library; only the
// former is seen.
void grpc::internal::ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  static const auto next = attend::Next(&ServerCallbackCall::ScheduleOnDone);
  __tsan_acquire(&callbacks_outstanding_);
  (this->*next)(inline_ondone);
}

// Waits for asynchronous calls of the client.
#ifndef ATTEND_TESTS_UNIT_CLIENT_WAITER_H_
#define ATTEND_TESTS_UNIT_CLIENT_WAITER_H_

#include <utility>

#include "absl/synchronization/notification.h"
#include "client/cpp/client.h"

namespace attend {

// The result of an asynchronous call, waited for.
class Waiter {
 public:
  Client::AttendCallback callback() {
    return [this](absl::StatusOr<AttendResult> result) {
      result_ = std::move(result);
      done_.Notify();
    };
  }
  bool done() const { return done_.HasBeenNotified(); }
  const absl::StatusOr<AttendResult>& Wait() {
    done_.WaitForNotification();
    return result_;
  }

 private:
  absl::StatusOr<AttendResult> result_ = absl::UnknownError("not called");
  absl::Notification done_;
};

}  // namespace attend

#endif  // ATTEND_TESTS_UNIT_CLIENT_WAITER_H_

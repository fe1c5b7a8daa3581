// Calls of the service, and what their errors say.
#ifndef ATTEND_TESTS_SUPPORT_CALLS_H_
#define ATTEND_TESTS_SUPPORT_CALLS_H_

#include <grpcpp/grpcpp.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attend/v1/attention.grpc.pb.h"
#include "attend/v1/error.pb.h"

namespace attend::testing {

// One call that has ended.
struct CallResult {
  grpc::Status status;
  v1::AttendResponse response;
  // From the server's details: the paths of wrong fields, and how long to wait before a retry.
  std::vector<std::string> fields;
  std::optional<double> retry_delay_seconds;
  // "grpc-retry-pushback-ms" of the trailing metadata.
  std::optional<std::string> retry_pushback_ms;
};

// Calls Attend with a deadline far away, or with the one that `context` has.
CallResult Attend(v1::AttentionService::Stub& stub, const v1::AttendRequest& request);
CallResult Attend(v1::AttentionService::Stub& stub, const v1::AttendRequest& request,
                  grpc::ClientContext& context);

// A call of Attend that goes on by itself. Cancelled, and waited for, when the object goes.
class RunningCall {
 public:
  RunningCall(const std::shared_ptr<grpc::Channel>& channel, v1::AttendRequest request,
              std::optional<double> deadline_seconds = std::nullopt);
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  void Cancel();
  // Waits for the end; for one thread, once.
  CallResult Wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend::testing

#endif  // ATTEND_TESTS_SUPPORT_CALLS_H_

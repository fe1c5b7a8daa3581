#include "tests/support/calls.h"

#include <cmath>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/support/wait.h"

namespace attend::testing {

namespace {

std::chrono::system_clock::time_point After(double seconds) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             std::chrono::duration<double>(seconds));
}

void ReadDetails(const grpc::ClientContext& context, CallResult& result) {
  const auto& trailers = context.GetServerTrailingMetadata();
  if (const auto found = trailers.find("grpc-retry-pushback-ms"); found != trailers.end()) {
    result.retry_pushback_ms = std::string(found->second.data(), found->second.size());
  }
  v1::Error error;
  if (result.status.error_details().empty()) return;
  EXPECT_TRUE(error.ParseFromString(result.status.error_details()));
  EXPECT_EQ(error.code(), result.status.error_code());
  EXPECT_EQ(error.message(), result.status.error_message());
  for (const auto& detail : error.details()) {
    v1::BadRequest bad_request;
    v1::RetryInfo retry;
    if (detail.type_url() == "type.googleapis.com/google.rpc.BadRequest") {
      EXPECT_TRUE(bad_request.ParseFromString(detail.value()));
    } else if (detail.type_url() == "type.googleapis.com/google.rpc.RetryInfo") {
      EXPECT_TRUE(retry.ParseFromString(detail.value()));
      result.retry_delay_seconds =
          static_cast<double>(retry.retry_delay().seconds()) + 1e-9 * retry.retry_delay().nanos();
    } else {
      ADD_FAILURE() << "unexpected detail " << detail.type_url();
    }
    for (const auto& violation : bad_request.field_violations()) {
      EXPECT_FALSE(violation.description().empty());
      result.fields.push_back(violation.field());
    }
  }
}

}  // namespace

CallResult Attend(v1::AttentionService::Stub& stub, const v1::AttendRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(After(kPatience.count()));
  return Attend(stub, request, context);
}

CallResult Attend(v1::AttentionService::Stub& stub, const v1::AttendRequest& request,
                  grpc::ClientContext& context) {
  CallResult result;
  result.status = stub.Attend(&context, request, &result.response);
  ReadDetails(context, result);
  return result;
}

struct RunningCall::State {
  std::unique_ptr<v1::AttentionService::Stub> stub;
  v1::AttendRequest request;
  grpc::ClientContext context;
  CallResult result;
  absl::Notification ended;
  bool waited = false;
};

RunningCall::RunningCall(const std::shared_ptr<grpc::Channel>& channel, v1::AttendRequest request,
                         std::optional<double> deadline_seconds)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.stub = v1::AttentionService::NewStub(channel);
  state.request = std::move(request);
  if (deadline_seconds.has_value()) state.context.set_deadline(After(*deadline_seconds));
  state.stub->async()->Attend(&state.context, &state.request, &state.result.response,
                              [&state](grpc::Status status) {
                                state.result.status = std::move(status);
                                state.ended.Notify();
                              });
}

RunningCall::~RunningCall() {
  if (state_->waited) return;
  Cancel();
  Wait();
}

void RunningCall::Cancel() { state_->context.TryCancel(); }

CallResult RunningCall::Wait() {
  state_->ended.WaitForNotification();
  state_->waited = true;
  ReadDetails(state_->context, state_->result);
  return std::move(state_->result);
}

}  // namespace attend::testing

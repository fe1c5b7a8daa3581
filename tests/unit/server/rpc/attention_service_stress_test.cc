// Calls that end in every way there is, at the same time. Meant for the sanitizers too.
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <vector>

#include "absl/random/random.h"
#include "absl/synchronization/blocking_counter.h"
#include "tests/unit/server/rpc/rpc_test_server.h"

namespace attend {
namespace {

class AttentionServiceStressTest : public RpcTest {};

// A call with a deadline around the time that it takes.
struct Call {
  grpc::ClientContext context;
  v1::AttendRequest request;
  v1::AttendResponse response;
  grpc::Status status;
};

TEST_F(AttentionServiceStressTest, FinishesEachCallOnceWhateverHappens) {
  constexpr int kRounds = 50;
  constexpr int kCallsPerRound = 40;
  Start({.max_queued_requests = 32, .max_batch_requests = 8});
  std::mt19937 generator(1);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::unique_ptr<Call>> calls;
    absl::BlockingCounter left(kCallsPerRound);
    for (int i = 0; i < kCallsPerRound; ++i) {
      Call& call = *calls.emplace_back(std::make_unique<Call>());
      call.request = Request(absl::Uniform(generator, 1, 100));
      call.context.set_deadline(std::chrono::system_clock::now() +
                                std::chrono::microseconds(absl::Uniform(generator, 100, 8000)));
      stub_->async()->Attend(&call.context, &call.request, &call.response,
                             [&call, &left](grpc::Status status) {
                               call.status = std::move(status);
                               left.DecrementCount();
                             });
      if (absl::Bernoulli(generator, 0.2)) call.context.TryCancel();
    }
    left.Wait();
    for (const std::unique_ptr<Call>& call : calls) {
      if (!call->status.ok()) continue;
      EXPECT_EQ(call->response.output().data().size(), call->request.query().data().size());
    }
  }
  EXPECT_TRUE(Attend(Request()).ok());
  Stop();
  EXPECT_EQ(Metric("attend_in_flight_requests"), "0");
  EXPECT_EQ(Metric("attend_queue_depth"), "0");
  EXPECT_EQ(Requests("INTERNAL"), "0");
}

}  // namespace
}  // namespace attend

// Many requests at once: batches, isolation, races, and what must stay bounded.
#include <dirent.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"

namespace attend::testing {
namespace {

using ::testing::AnyOf;

constexpr char kInFlight[] = "attend_in_flight_requests";

class LoadTest : public ServerTest {
 protected:
  std::unique_ptr<RunningCall> StartCall(const v1::AttendRequest& request) {
    return std::make_unique<RunningCall>(channel_, request);
  }
};

// A delay that never ends within the test: what is answered was not waiting for it.
TEST_F(LoadTest, FullBatchGoesAtOnce) {  // B45
  StartServer({"--max-queue-delay", "1m", "--max-batch-requests", "4"});
  std::vector<v1::AttendRequest> requests;
  std::vector<std::unique_ptr<RunningCall>> calls;
  for (int i = 0; i < 4; ++i) {  // of different shapes: B40, B42
    requests.push_back(RandomRequest({.query_len = 1 + i, .head_dim = 3 + i}, 1 + i));
    calls.push_back(StartCall(requests.back()));
  }
  for (int i = 0; i < 4; ++i) {
    const CallResult result = calls[i]->Wait();
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.response.stats().batch_size(), 4);
    ExpectMatchesReference(requests[i], result.response);
  }
  EXPECT_EQ(server_->Metric("attend_batch_requests_sum"), 4);
  EXPECT_EQ(server_->Metric("attend_batch_requests_count"), 1);
}

TEST_F(LoadTest, BadRequestFailsAloneAndAtOnce) {  // B46
  StartServer({"--max-queue-delay", "1m", "--max-batch-requests", "2"});
  const v1::AttendRequest good = RandomRequest();
  v1::AttendRequest bad = good;
  bad.mutable_value()->mutable_data()->pop_back();
  const auto first = StartCall(good);
  ASSERT_TRUE(WaitForMetric("attend_queue_depth{priority=\"normal\"}", 1));
  EXPECT_EQ(Attend(*stub_, bad).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto second = StartCall(good);
  ExpectMatchesReference(good, first->Wait().response);
  ExpectMatchesReference(good, second->Wait().response);
}

TEST_F(LoadTest, DeadlinesAndCancelsThatRaceWithAnswersHarmNothing) {  // B28
  StartServer();
  const v1::AttendRequest request = RandomRequest({.query_len = 64, .kv_len = 64});
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> deadline(0.0, 0.004);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::unique_ptr<RunningCall>> calls;
    for (int i = 0; i < 20; ++i) {
      calls.push_back(std::make_unique<RunningCall>(channel_, request, deadline(generator)));
    }
    for (std::size_t i = 0; i < calls.size(); i += 3) calls[i]->Cancel();
    for (const auto& call : calls) {
      EXPECT_THAT(call->Wait().status.error_code(),
                  AnyOf(grpc::StatusCode::OK, grpc::StatusCode::DEADLINE_EXCEEDED,
                        grpc::StatusCode::CANCELLED));
    }
  }
  EXPECT_TRUE(WaitForMetric(kInFlight, 0));
  EXPECT_EQ(server_->Metric("attend_queue_depth{priority=\"normal\"}"), 0);
  ExpectMatchesReference(request, Attend(*stub_, request).response);
}

TEST_F(LoadTest, KernelsStayBoundedWhateverShapesArrive) {  // B31
  StartServer();
  std::mt19937 generator(2);
  std::uniform_int_distribution<int> length(1, 150);
  const auto send_odd_shapes = [&] {
    for (int i = 0; i < 100; ++i) {
      const v1::AttendRequest request = RandomRequest({.batch = 1,
                                                       .query_heads = 1,
                                                       .kv_heads = 1,
                                                       .query_len = length(generator),
                                                       .kv_len = length(generator),
                                                       .head_dim = length(generator),
                                                       .value_dim = length(generator)});
      ASSERT_TRUE(Attend(*stub_, request).status.ok());
    }
  };
  send_odd_shapes();
  send_odd_shapes();
  const double seen = server_->Metric("attend_gemm_primitives").value_or(0);
  EXPECT_GT(seen, 0);
  EXPECT_LT(seen, 200);  // fewer than one a shape
  send_odd_shapes();
  EXPECT_LE(server_->Metric("attend_gemm_primitives").value_or(0), seen + 10);
}

int CountThreads(pid_t pid) {
  DIR* folder = opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  if (folder == nullptr) return 0;
  int threads = 0;
  while (const dirent* entry = readdir(folder)) threads += entry->d_name[0] != '.';
  closedir(folder);
  return threads;
}

TEST_F(LoadTest, ThreadsStayBoundedWhateverTheLoad) {  // B33
  StartServer();
  const v1::AttendRequest request = RandomRequest();
  ASSERT_TRUE(Attend(*stub_, request).status.ok());
  const int before = CountThreads(server_->process().pid());
  ASSERT_GT(before, 0);
  std::vector<std::unique_ptr<RunningCall>> calls;
  for (int i = 0; i < 500; ++i) calls.push_back(StartCall(request));
  for (const auto& call : calls) {
    EXPECT_TRUE(call->Wait().status.ok());
    EXPECT_LE(CountThreads(server_->process().pid()), before + 32);
  }
}

TEST_F(LoadTest, MemoryDoesNotGrowWithTraffic) {  // B30
  StartServer();
  const v1::AttendRequest request = RandomRequest({.batch = 1,
                                                   .query_heads = 64,
                                                   .kv_heads = 1,
                                                   .query_len = 256,
                                                   .kv_len = 16,
                                                   .head_dim = 64,
                                                   .value_dim = 64});
  const auto send = [&](int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(Attend(*stub_, request).status.ok());
  };
  send(20);
  const std::int64_t before = server_->process().PeakResidentBytes();
  send(150);  // more than 1.2 GB both ways
  EXPECT_LT(server_->process().PeakResidentBytes() - before, std::int64_t{400} << 20);
}

TEST_F(LoadTest, AgeingConnectionsLoseNoCall) {  // B57
  StartServer({"--max-connection-age", "50ms"});
  const v1::AttendRequest request = RandomRequest();
  for (int i = 0; i < 2000; ++i) {
    const CallResult result = Attend(*stub_, request);
    ASSERT_TRUE(result.status.ok()) << i << ": " << result.status.error_message();
  }
}

}  // namespace
}  // namespace attend::testing

// A server that is replaced under load loses no call of the C++ client.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <signal.h>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/support/requests.h"
#include "tests/support/server_process.h"

namespace attend::testing {
namespace {

// Calls in all; ATTEND_TEST_DRAIN_CALLS=20000 for the full length.
int NumCalls() {
  const char* calls = std::getenv("ATTEND_TEST_DRAIN_CALLS");
  return calls != nullptr ? std::atoi(calls) : 2000;
}

// Calls from several threads until `total` calls have been made, and counts.
class Load {
 public:
  Load(Client& client, int total) : client_(client), total_(total) {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this, i] { Run(i); });
  }
  ~Load() { Join(); }

  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  int answered() const { return answered_; }
  int failed() const { return failed_; }
  std::string first_error() const {
    absl::MutexLock lock(&mutex_);
    return first_error_;
  }

 private:
  static constexpr int kThreads = 4;

  void Run(int thread) {
    // Every other thread sends more than one flow control window.
    const Sizes sizes = {.query_len = 4, .kv_len = thread % 2 == 0 ? 8 : 4000};
    const v1::AttendRequest request = RandomRequest(sizes, 1 + thread);
    const AttentionArgs args = ToArgs(request);
    std::string right;
    while (started_++ < total_) {
      const auto result = client_.Attend(args, {.wait_for_ready = true});
      if (!result.ok()) {
        ++failed_;
        absl::MutexLock lock(&mutex_);
        if (first_error_.empty()) first_error_ = result.status().ToString();
        continue;
      }
      const std::string output(reinterpret_cast<const char*>(result->output.data.data()),
                               result->output.data.size());
      if (right.empty()) right = output;
      EXPECT_EQ(output, right);
      ++answered_;
    }
  }

  Client& client_;
  const int total_;
  std::atomic<int> started_{0};
  std::atomic<int> answered_{0};
  std::atomic<int> failed_{0};
  mutable absl::Mutex mutex_;
  std::string first_error_;
  std::vector<std::thread> threads_;
};

class DrainTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(All, DrainTest, ::testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "Stream" : "Unary");
});

TEST_P(DrainTest, ReplacingTheServerUnderLoadLosesNoCall) {
  const bool stream = GetParam();
  const int total = NumCalls();
  // The default grace: time for clients to see that the server is leaving. Streams need none: the
  // server answers what it has read, and ends them; until then they go on.
  auto server = ServerProcess::Start({"--drain-grace", stream ? "10ms" : "700ms"});
  ASSERT_NE(server, nullptr);
  const std::string target = server->tcp_target();
  auto client = Client::Create({.target = target, .use_stream = stream});
  ASSERT_TRUE(client.ok()) << client.status();

  Load load(**client, total);
  ASSERT_TRUE(WaitUntil([&] { return load.answered() >= total / 4; }, 10 * kPatience));
  server->StopAndExpectSuccess();  // in the middle of the load
  EXPECT_LT(load.answered(), total) << "the load ended before the drain; raise the number of calls";
  const auto successor = ServerProcess::Start({"--listen", target});
  ASSERT_NE(successor, nullptr);
  load.Join();

  EXPECT_EQ(load.failed(), 0) << load.first_error();
  EXPECT_EQ(load.answered(), total);
  successor->StopAndExpectSuccess();
}

}  // namespace
}  // namespace attend::testing

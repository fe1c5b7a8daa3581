// Many requests that end in every way there is, at the same time. Meant for the sanitizers too.
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/random/random.h"
#include "server/schedule/scheduler.h"
#include "tests/unit/server/schedule/test_request.h"

namespace attend {
namespace {

constexpr int kThreads = 4;
constexpr int kRequestsPerThread = 2500;

class SchedulerStressTest : public SchedulerTest {
 protected:
  SchedulerStressTest() : SchedulerTest(/*workers=*/2) {}
};

// Submits requests with deadlines around the time that they take, and cancels some of them.
class Caller {
 public:
  Caller(Scheduler& scheduler, Clock& clock, int seed)
      : scheduler_(scheduler), clock_(clock), generator_(static_cast<unsigned>(seed)) {}

  void Run() {
    for (int i = 0; i < kRequestsPerThread; ++i) {
      requests_.push_back(std::make_unique<TestRequest>(absl::Uniform(generator_, 1, 80)));
      SubmitOne(*requests_.back());
    }
  }

  // Every request was either refused or answered once.
  void Check() const {
    for (const auto& request : requests_) {
      if (!request->HasAnswer()) continue;
      EXPECT_EQ(request->answers, 1);
      const absl::StatusCode code = request->status().code();
      EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kCancelled ||
                  code == absl::StatusCode::kDeadlineExceeded ||
                  code == absl::StatusCode::kResourceExhausted)  // displaced
          << request->status();
    }
    EXPECT_EQ(answered(), submitted_);
  }

  int answered() const {
    int count = 0;
    for (const auto& request : requests_) count += request->HasAnswer() ? 1 : 0;
    return count;
  }

 private:
  void SubmitOne(TestRequest& request) {
    request.priority = static_cast<Priority>(absl::Uniform(generator_, 0, 3));
    if (absl::Bernoulli(generator_, 0.5)) {
      request.deadline = clock_.Now() + absl::Microseconds(absl::Uniform(generator_, 1, 2000));
    }
    std::unique_ptr<AttentionTask> task = request.Task(clock_);
    const absl::StatusOr<TaskId> id = scheduler_.Submit(task);
    if (!id.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(id.status()) || absl::IsDeadlineExceeded(id.status()))
          << id.status();
      // Full: goes on when there is room again.
      if (absl::IsResourceExhausted(id.status()) && last_ != nullptr) (void)last_->status();
      return;
    }
    ++submitted_;
    last_ = &request;
    if (absl::Bernoulli(generator_, 0.3)) scheduler_.Cancel(*id);
    if (absl::Bernoulli(generator_, 0.3)) scheduler_.Cancel(*id / 2);
  }

  Scheduler& scheduler_;
  Clock& clock_;
  std::mt19937 generator_;
  std::vector<std::unique_ptr<TestRequest>> requests_;
  int submitted_ = 0;
  const TestRequest* last_ = nullptr;  // that was submitted
};

TEST_F(SchedulerStressTest, AnswersEachRequestOnceWhateverHappens) {
  MonotonicClock clock;
  absl::StatusOr<std::unique_ptr<Scheduler>> scheduler = Scheduler::Create(
      {.max_queued_requests = 64, .max_batch_requests = 8}, engine_, executor_, clock, metrics_);
  ASSERT_TRUE(scheduler.ok());
  std::vector<std::unique_ptr<Caller>> callers;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    callers.push_back(std::make_unique<Caller>(**scheduler, clock, i));
    threads.emplace_back([caller = callers.back().get()] { caller->Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  (*scheduler)->Shutdown(absl::InfiniteFuture());
  for (const auto& caller : callers) caller->Check();
  EXPECT_EQ((*scheduler)->num_pending(), 0);
  EXPECT_EQ((*scheduler)->Load().admitted_requests, 0);
  EXPECT_EQ((*scheduler)->Load().admitted_bytes, 0);
}

}  // namespace
}  // namespace attend

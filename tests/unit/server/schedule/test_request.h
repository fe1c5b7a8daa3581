// Requests for the scheduler's tests, and the fixture that computes them.
#ifndef ATTEND_TESTS_UNIT_SERVER_SCHEDULE_TEST_REQUEST_H_
#define ATTEND_TESTS_UNIT_SERVER_SCHEDULE_TEST_REQUEST_H_

#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/attention/attention.h"
#include "core/base/attention_problem.h"
#include "core/base/buffer_pool.h"
#include "core/base/tensor.h"
#include "core/executor/executor.h"
#include "server/observe/metrics.h"
#include "server/schedule/scheduler.h"
#include "tests/unit/server/schedule/fake_clock.h"

namespace attend {

// Self-attention of `length` tokens with one head of 4 dimensions, and what became of it.
class TestRequest {
 public:
  explicit TestRequest(std::int64_t length = 2)
      : input_(RampTensor(length)), output_(*Tensor::Zeros(DType::kFloat32, input_.shape)) {}

  // What was taken is answered, and the answer must find its request.
  ~TestRequest() {
    if (taken) done_.WaitForNotification();
  }

  static Tensor RampTensor(std::int64_t length) {
    std::vector<float> values(static_cast<std::size_t>(length) * 4);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 7) / 4 - 0.75f;
    }
    return Tensor::FromFloats(DType::kFloat32, {1, 1, length, 4}, values);
  }

  AttentionProblem Problem() const {
    AttentionArgs args;
    args.query = args.key = args.value = input_.view();
    return *AttentionProblem::Create(args);
  }

  std::int64_t flops() const { return Problem().flops(); }

  // What it counts for against max_queued_bytes.
  std::int64_t bytes() const { return message_bytes + WorkingBytes(Problem()); }

  // The request may be taken by a scheduler once.
  std::unique_ptr<AttentionTask> Task(const Clock& clock) {
    auto task = std::make_unique<AttentionTask>(AttentionTask{.problem = Problem()});
    task->priority = priority;
    task->arrival = clock.Now();
    task->deadline = deadline;
    task->message_bytes = message_bytes;
    task->allocate_outputs = [this]() -> absl::StatusOr<AttentionOutputs> {
      allocated = true;
      if (on_allocate) on_allocate();
      return AttentionOutputs{.output = output_.data.data()};
    };
    task->on_done = [this](absl::Status status, const TaskStats& task_stats) {
      ++answers;
      status_ = std::move(status);
      stats_ = task_stats;
      if (on_done) on_done();
      done_.Notify();
    };
    return task;
  }

  bool HasAnswer() const { return done_.HasBeenNotified(); }
  // Both wait for the answer.
  const absl::Status& status() const {
    done_.WaitForNotification();
    return status_;
  }
  const TaskStats& stats() const {
    done_.WaitForNotification();
    return stats_;
  }

  const Tensor& output() const { return output_; }
  bool IsUntouched() const { return output_.data == std::vector<std::byte>(output_.data.size()); }

  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  std::int64_t message_bytes = 100;
  std::function<void()> on_allocate;  // called inside Submit
  std::function<void()> on_done;      // called before the answer counts as given
  bool taken = false;                 // by a scheduler
  bool allocated = false;
  int answers = 0;

 private:
  const Tensor input_;
  Tensor output_;
  absl::Status status_ = absl::UnknownError("no answer yet");
  TaskStats stats_;
  absl::Notification done_;
};

// A request that keeps a worker busy until it is let go.
class Plug {
 public:
  Plug() {
    request_.on_done = [this] {
      computing_.Notify();
      let_go_.WaitForNotification();
    };
  }

  ~Plug() {
    if (!let_go_.HasBeenNotified()) LetGo();
  }

  TestRequest& request() { return request_; }
  void WaitUntilComputing() const { computing_.WaitForNotification(); }
  void LetGo() { let_go_.Notify(); }

 private:
  absl::Notification computing_;
  absl::Notification let_go_;
  TestRequest request_;  // goes first, once it is answered
};

// The order in which requests were answered.
class Order {
 public:
  void Watch(TestRequest& request, std::string name) {
    request.on_done = [this, name] {
      absl::MutexLock lock(&mutex_);
      names_.push_back(name);
    };
  }

  std::vector<std::string> names() const {
    absl::MutexLock lock(&mutex_);
    return names_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

class SchedulerTest : public testing::Test {
 protected:
  // One worker, so that what waits for it is computed in an order that is known.
  explicit SchedulerTest(int workers = 1)
      : executor_({.threads = workers}), engine_(executor_, buffers_), metrics_(MetricsOptions()) {}

  void Start(const SchedulerOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<Scheduler>> scheduler =
        Scheduler::Create(options, engine_, executor_, clock_, metrics_);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler_ = *std::move(scheduler);
  }

  absl::StatusOr<TaskId> Submit(TestRequest& request) {
    std::unique_ptr<AttentionTask> task = request.Task(clock_);
    absl::StatusOr<TaskId> id = scheduler_->Submit(task);
    // Ownership changes hands with success, and only with it.
    EXPECT_EQ(task == nullptr, id.ok());
    request.taken = id.ok();
    return id;
  }

  void SubmitOk(TestRequest& request) { ASSERT_TRUE(Submit(request).ok()); }

  // Keeps the only worker busy, so that what is submitted next waits.
  void Hold(Plug& plug) {
    SubmitOk(plug.request());
    plug.WaitUntilComputing();
  }

  // The value of a metric, as written.
  std::string Metric(const std::string& name) const {
    const std::string text = metrics_.Exposition();
    const std::size_t at = text.find("\n" + name + " ");
    if (at == std::string::npos) return "absent";
    const std::size_t begin = at + name.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  std::string Dropped(const std::string& reason, const std::string& priority = "normal") const {
    return Metric("attend_dropped_total{priority=\"" + priority + "\",reason=\"" + reason + "\"}");
  }

  FakeClock clock_;
  Executor executor_;
  BufferPool buffers_;
  AttentionEngine engine_;
  Metrics metrics_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace attend

#endif  // ATTEND_TESTS_UNIT_SERVER_SCHEDULE_TEST_REQUEST_H_

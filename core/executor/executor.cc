#include "core/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/executor/cpu_limits.h"
#include "core/executor/tsan_handover.h"

namespace attend {

namespace {

// Of all executors together; TBB starts threads only when they are needed.
constexpr int kMaxWorkersOfProcess = 256;

// Names the workers, and makes them yield to the threads that answer callers.
class WorkerObserver : public tbb::task_scheduler_observer {
 public:
  WorkerObserver(tbb::task_arena& arena, int nice) : task_scheduler_observer(arena), nice_(nice) {
    HandToTbb();
    observe(true);
  }
  ~WorkerObserver() override {
    observe(false);
    ReceiveFromTbb();
  }

  void on_scheduler_entry(bool is_worker) override {
    if (!is_worker) return;
    ReceiveFromTbb();
    pthread_setname_np(pthread_self(), "attend-compute");
    // Linux keeps a nice value for each thread; raising it needs no privilege. Set, not added: a
    // worker may enter more than once.
    if (nice_ > 0) setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice_);
    HandToTbb();
  }

 private:
  const int nice_;
};

// A job on its way through its stages.
struct RunningJob {
  TileJob* job = nullptr;
  int stage = 0;
  std::int64_t num_units = 0;         // of the stage
  std::int64_t first = 0;             // of the stage's units in the region
  std::atomic<std::int64_t> left{0};  // units of the stage that have not finished
};

}  // namespace

class Executor::Impl {
 public:
  explicit Impl(const ExecutorOptions& options)
      : threads_(options.threads > 0 ? options.threads : UsableCpus()),
        // The limit is the process's, shared by all executors; each one's arena bounds it, so the
        // limit only has to be large. Slot 0 is reserved for callers, who never enter, so
        // that workers, and only they, hold slots 1 to threads_.
        parallelism_(tbb::global_control::max_allowed_parallelism,
                     std::max(threads_ + 1, kMaxWorkersOfProcess)),
        arena_(threads_ + 1, /*reserved_for_masters=*/1),
        observer_(arena_, options.nice) {}

  int num_threads() const { return threads_; }

  void Run(std::span<TileJob* const> jobs) {
    auto batch = std::make_shared<Batch>();
    for (TileJob* job : jobs) {
      auto entry = std::make_unique<RunningJob>();
      entry->job = job;
      SkipEmptyStages(*entry);
      if (entry->job != nullptr) batch->running.push_back(std::move(entry));
    }
    if (batch->running.empty()) return;
    std::future<void> finished = batch->finished.get_future();
    // Once for a whole batch, since a change of threads costs more than a small request's tiles.
    // The caller waits and never computes: its thread is not one of the workers and has no scratch.
    arena_.enqueue(BatchTask(batch));
    finished.wait();
  }

 private:
  using RunningJobs = std::vector<std::unique_ptr<RunningJob>>;

  // The jobs of one Run. Shared by it and its task: Run may return while the task still is in
  // set_value.
  struct Batch {
    RunningJobs running;
    std::promise<void> finished;
  };

  // What the arena runs. TBB copies it into memory of its own and destroys it there, so these are
  // handed over as well.
  class BatchTask {
   public:
    explicit BatchTask(std::shared_ptr<Batch> batch) : batch_(std::move(batch)) {}
    BatchTask(const BatchTask& other) : batch_(other.batch_) { HandToTbb(); }
    BatchTask& operator=(const BatchTask&) = delete;
    ~BatchTask() { ReceiveFromTbb(); }

    void operator()() const {
      ReceiveFromTbb();
      while (!batch_->running.empty()) {
        RunStage(batch_->running);
        std::erase_if(batch_->running, [](const auto& entry) { return entry->job == nullptr; });
      }
      batch_->finished.set_value();
    }

   private:
    std::shared_ptr<Batch> batch_;
  };

  // Runs the current stage of every job side by side.
  static void RunStage(RunningJobs& running) {
    std::int64_t total = 0;
    for (auto& entry : running) {
      entry->num_units = entry->job->num_units(entry->stage);
      entry->first = total;
      entry->left = entry->num_units;
      total += entry->num_units;
    }
    const auto run_unit = [&running](std::int64_t unit) {
      ReceiveFromTbb();
      RunUnit(running, unit);
      HandToTbb();
    };
    HandToTbb();
    tbb::parallel_for(std::int64_t{0}, total, run_unit, tbb::simple_partitioner());
    ReceiveFromTbb();
  }

  static void RunUnit(RunningJobs& running, std::int64_t unit) {
    const auto after = std::upper_bound(
        running.begin(), running.end(), unit,
        [](std::int64_t value, const auto& entry) { return value < entry->first; });
    // Of several jobs that begin at one place, all but the last are empty.
    RunningJob& entry = **(after - 1);
    entry.job->RunUnit(entry.stage, unit - entry.first,
                       tbb::this_task_arena::current_thread_index() - 1);
    if (entry.left.fetch_sub(1, std::memory_order_acq_rel) == 1) EndStage(entry);
  }

  static void EndStage(RunningJob& entry) {
    ++entry.stage;
    SkipEmptyStages(entry);
  }

  // Goes to the next stage that has units, or finishes the job at once if there is none: it must
  // not wait for a stage of others.
  static void SkipEmptyStages(RunningJob& entry) {
    while (entry.stage < entry.job->num_stages()) {
      if (entry.job->num_units(entry.stage) > 0) return;
      ++entry.stage;
    }
    entry.job->Finish();
    entry.job = nullptr;
  }

  const int threads_;
  tbb::global_control parallelism_;
  tbb::task_arena arena_;
  WorkerObserver observer_;
};

Executor::Executor(const ExecutorOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Executor::~Executor() = default;

int Executor::num_threads() const { return impl_->num_threads(); }

void Executor::Run(std::span<TileJob* const> jobs) { impl_->Run(jobs); }

}  // namespace attend

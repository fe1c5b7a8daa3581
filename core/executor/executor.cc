#include "core/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>
#include <unistd.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "core/base/tsan_handover.h"
#include "core/executor/cpu_limits.h"
#include "core/executor/tile_queue.h"

namespace attend {

namespace {

// Of all executors together; TBB starts threads only when they are needed.
constexpr int kMaxWorkersOfProcess = 256;

char to_tbb;  // all that TBB carries from thread to thread, for TSan

// Names the workers, and makes them yield to the threads that answer callers.
class WorkerObserver : public tbb::task_scheduler_observer {
 public:
  WorkerObserver(tbb::task_arena& arena, int nice) : task_scheduler_observer(arena), nice_(nice) {
    HandOver(&to_tbb);
    observe(true);
  }
  ~WorkerObserver() override {
    observe(false);
    TakeOver(&to_tbb);
  }

  void on_scheduler_entry(bool is_worker) override {
    if (!is_worker) return;
    TakeOver(&to_tbb);
    pthread_setname_np(pthread_self(), "attend-compute");
    // Linux keeps a nice value for each thread; raising it needs no privilege. Set, not added: a
    // worker may enter more than once.
    if (nice_ > 0) setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice_);
    HandOver(&to_tbb);
  }

 private:
  const int nice_;
};

// A job of Run: passes everything on, and tells Run of its end.
class AwaitedJob final : public TileJob {
 public:
  AwaitedJob(TileJob& job, absl::BlockingCounter& finished) : job_(job), finished_(finished) {}

  int num_stages() const override { return job_.num_stages(); }
  std::int64_t num_units(int stage) const override { return job_.num_units(stage); }
  std::int64_t unit_cost(int stage) const override { return job_.unit_cost(stage); }
  void RunUnit(int stage, std::int64_t unit, Worker& worker) override {
    job_.RunUnit(stage, unit, worker);
  }
  void Finish() override {
    job_.Finish();
    finished_.DecrementCount();  // Run may return now, and this be gone
  }

 private:
  TileJob& job_;
  absl::BlockingCounter& finished_;
};

}  // namespace

// Workers are loops in the arena that take units until there are none; TBB keeps the threads.
class Executor::Impl {
 public:
  explicit Impl(const ExecutorOptions& options)
      : threads_(options.threads > 0 ? options.threads : UsableCpus()),
        queue_(threads_),
        // The limit is the process's, shared by all executors; each one's arena bounds it, so the
        // limit only has to be large. Slot 0 is reserved for callers, who never enter, so
        // that workers, and only they, hold slots 1 to threads_.
        parallelism_(tbb::global_control::max_allowed_parallelism,
                     std::max(threads_ + 1, kMaxWorkersOfProcess)),
        arena_(threads_ + 1, /*reserved_for_masters=*/1),
        observer_(arena_, options.nice) {}

  // The last loop may still be leaving, after the last job's Finish.
  ~Impl() {
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Impl::IsIdle));
  }

  int num_threads() const { return threads_; }

  void Submit(TileJob& job, const JobOptions& options) {
    std::uint64_t number = 0;
    int loops = 0;
    {
      const absl::MutexLock lock(&mutex_);
      number = queue_.Add(job, options);
      if (number != 0) loops = AddLoops();
    }
    if (number == 0) return job.Finish();
    if (StartLoops(loops)) return;
    const absl::MutexLock lock(&mutex_);
    if (!SomeLoopComes() && queue_.Remove(number)) throw std::bad_alloc();
  }

 private:
  // A thread of the arena, at work for a loop.
  class LoopWorker final : public Worker {
   public:
    LoopWorker(Impl& impl, int slot) : Worker(slot), impl_(impl) {}

    void Run(const TileQueue::Units& units) {
      claim_ = units.claim;
      RunUnits(units, *this);
    }
    void LetOthersRun() override {
      if (impl_.short_units_ready_.load(std::memory_order_relaxed)) {
        impl_.RunShortUnits(slot(), claim_);
      }
    }

   private:
    Impl& impl_;
    double claim_ = 0;  // of the job that runs
  };

  // The same thread, in the midst of a long unit.
  class NestedWorker final : public Worker {
   public:
    explicit NestedWorker(int slot) : Worker(slot) {}
    void LetOthersRun() override {}  // what it runs is short
  };

  // What the arena runs. TBB copies it into memory of its own and destroys it there, so these are
  // handed over as well.
  class Loop {
   public:
    explicit Loop(Impl& impl) : impl_(&impl) {}
    Loop(const Loop& other) : impl_(other.impl_) { HandOver(&to_tbb); }
    Loop& operator=(const Loop&) = delete;
    ~Loop() { TakeOver(&to_tbb); }

    void operator()() const {
      TakeOver(&to_tbb);
      impl_->RunLoop();
    }

   private:
    Impl* impl_;
  };

  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return loops_ == 0; }

  static void RunUnits(const TileQueue::Units& units, Worker& worker) {
    for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
      units.job->RunUnit(units.stage, unit, worker);
    }
  }

  // Whether TBB is sure to have a loop that has not ended; it ends only where nothing is ready. One
  // that is about to be started is none, since that may fail.
  bool SomeLoopComes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return busy_loops_ > 0 || loops_ > starting_;
  }

  // How many loops more the units that are ready can use; they count from now on. At least one
  // where no other is sure to come, even if that makes more loops than threads: one too many finds
  // nothing to take and ends.
  int AddLoops() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    short_units_ready_.store(queue_.num_ready_short() > 0, std::memory_order_relaxed);
    const std::int64_t coming = loops_ - busy_loops_;  // each of which takes units soon
    const std::int64_t useful = queue_.num_ready() - coming;
    const std::int64_t needed = queue_.num_ready() > 0 && !SomeLoopComes() ? 1 : 0;
    const std::int64_t added = std::max(needed, std::min<std::int64_t>(threads_ - loops_, useful));
    loops_ += static_cast<int>(added);
    starting_ += static_cast<int>(added);
    return static_cast<int>(added);
  }

  // False where there is no memory for all of them: whoever adds or ends units next tries again.
  bool StartLoops(int count) {
    int started = 0;
    try {
      for (; started < count; ++started) {
        arena_.enqueue(Loop(*this));
        --starting_;
      }
      return true;
    } catch (const std::bad_alloc&) {
      const absl::MutexLock lock(&mutex_);
      loops_ -= count - started;
      starting_ -= count - started;
      return false;
    }
  }

  void RunLoop() {
    LoopWorker worker(*this, tbb::this_task_arena::current_thread_index() - 1);
    for (auto units = Take(/*was_busy=*/false); units.has_value();
         units = Take(/*was_busy=*/true)) {
      worker.Run(*units);
      End(*units);
    }
  }

  // The next units for a loop. Without any the loop ends.
  std::optional<TileQueue::Units> Take(bool was_busy) {
    std::optional<TileQueue::Units> units;
    int added = 0;
    {
      const absl::MutexLock lock(&mutex_);
      if (was_busy) --busy_loops_;
      units = queue_.Pop();
      if (units.has_value()) {
        ++busy_loops_;
      } else {
        --loops_;
      }
      added = AddLoops();
    }
    StartLoops(added);
    return units;
  }

  // The next short units that go before `claim`.
  std::optional<TileQueue::Units> TakeShort(double claim) {
    std::optional<TileQueue::Units> units;
    int added = 0;
    {
      const absl::MutexLock lock(&mutex_);
      units = queue_.PopShort(claim);
      added = AddLoops();
    }
    StartLoops(added);
    return units;
  }

  // Runs short units that go before `claim` in the midst of a unit that has `slot`.
  void RunShortUnits(int slot, double claim) {
    NestedWorker worker(threads_ + slot);
    while (const auto units = TakeShort(claim)) {
      RunUnits(*units, worker);
      End(*units);
    }
  }

  // The loop counts as busy until the job's Finish has returned, since it takes nothing meanwhile.
  void End(const TileQueue::Units& units) {
    bool last = false;
    {
      const absl::MutexLock lock(&mutex_);
      last = queue_.Done(units);
    }
    if (last) units.job->Finish();
  }

  const int threads_;
  absl::Mutex mutex_;
  TileQueue queue_ ABSL_GUARDED_BY(mutex_);
  int loops_ ABSL_GUARDED_BY(mutex_) = 0;       // that run or are about to
  int busy_loops_ ABSL_GUARDED_BY(mutex_) = 0;  // of these: that run units
  // Loops that count and that TBB may not have yet. Falls without the mutex, perhaps a little late.
  std::atomic<int> starting_{0};
  // What a long unit looks at without the mutex: it may come a little late.
  std::atomic<bool> short_units_ready_{false};
  tbb::global_control parallelism_;
  tbb::task_arena arena_;
  WorkerObserver observer_;
};

Executor::Executor(const ExecutorOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Executor::~Executor() = default;

int Executor::num_threads() const { return impl_->num_threads(); }

void Executor::Submit(TileJob& job, const JobOptions& options) { impl_->Submit(job, options); }

void Executor::Run(std::span<TileJob* const> jobs) {
  absl::BlockingCounter finished(static_cast<int>(jobs.size()));
  std::deque<AwaitedJob> awaited;  // whose elements stay where they are
  for (TileJob* job : jobs) awaited.emplace_back(*job, finished);
  auto next = awaited.begin();
  try {
    for (; next != awaited.end(); ++next) impl_->Submit(*next, {});
  } catch (const std::bad_alloc&) {
    // What has started refers to what lives here.
    for (; next != awaited.end(); ++next) finished.DecrementCount();
    finished.Wait();
    throw;
  }
  finished.Wait();
}

}  // namespace attend

// Runs jobs that are cut into units (tiles) on a fixed set of threads.
#ifndef ATTEND_CORE_EXECUTOR_EXECUTOR_H_
#define ATTEND_CORE_EXECUTOR_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <span>

namespace attend {

// Work in stages; the units of one stage are independent of each other and may run on any thread
// in any order, and a stage begins when all units of the one before have finished.
class TileJob {
 public:
  virtual ~TileJob() = default;

  virtual int num_stages() const = 0;
  virtual std::int64_t num_units(int stage) const = 0;

  // Runs one unit. `worker` is in [0, Executor::num_threads()); no two units run with the same
  // worker at once, so it may index scratch memory. Must not throw or block.
  virtual void RunUnit(int stage, std::int64_t unit, int worker) = 0;

  // Called once, after the last unit, by the thread that finished it (by Run's if there is no
  // unit), while other jobs of the batch may still run. The job may be destroyed by it. Must not
  // throw or block.
  virtual void Finish() = 0;
};

struct ExecutorOptions {
  // Threads that compute; 0 = as many as this process may use (see cpu_limits.h).
  int threads = 0;
  // Added to each worker's nice value, so that compute yields to threads that answer.
  int nice = 0;
};

// Thread-safety: Run may be called from several threads; their jobs then share the threads.
class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  int num_threads() const;

  // Runs all jobs to their end, side by side in one parallel region, and returns when the last has
  // finished. The calling thread waits and does not compute.
  void Run(std::span<TileJob* const> jobs);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend

#endif  // ATTEND_CORE_EXECUTOR_EXECUTOR_H_

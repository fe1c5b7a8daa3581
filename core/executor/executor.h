// Runs jobs that are cut into units (tiles) on a fixed set of threads.
#ifndef ATTEND_CORE_EXECUTOR_EXECUTOR_H_
#define ATTEND_CORE_EXECUTOR_EXECUTOR_H_

#include <memory>
#include <span>

#include "core/executor/tile_job.h"

namespace attend {

struct ExecutorOptions {
  // Threads that compute; 0 = as many as this process may use (see cpu_limits.h).
  int threads = 0;
  // Added to each worker's nice value, so that compute yields to threads that answer.
  int nice = 0;
};

// Thread-safety: safe from any thread. All jobs share the threads, as told in README.md.
class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  // Every job must have finished.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  int num_threads() const;

  // Worker::slot() is less than this. More than threads, since units run in the midst of others.
  int num_slots() const { return 2 * num_threads(); }

  // Starts a job and returns; it joins those that run. It must live until its Finish, which may
  // come before this returns. Throws std::bad_alloc, and then the job never starts.
  void Submit(TileJob& job, const JobOptions& options = {});

  // Runs all jobs to their end, side by side, and returns when the last has finished. The calling
  // thread waits and does not compute. Throws std::bad_alloc, and then some never start, while
  // those that did have finished.
  void Run(std::span<TileJob* const> jobs);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend

#endif  // ATTEND_CORE_EXECUTOR_EXECUTOR_H_

// Whose tile is next: weighted fair sharing of the workers between the jobs that run.
//
// How it decides is told in core/executor/README.md.
#ifndef ATTEND_CORE_EXECUTOR_TILE_QUEUE_H_
#define ATTEND_CORE_EXECUTOR_TILE_QUEUE_H_

#include <cstdint>
#include <list>
#include <optional>
#include <set>

#include "core/executor/tile_job.h"

namespace attend {

// Start-time fair queueing (Goyal, Vin and Cheng, 1996) over units of jobs. Each job has a start
// time in virtual time, which its units move on by their cost over its weight; the job that stands
// earliest goes first. What joins, or comes back from the end of a stage, stands where the queue
// stands, so nobody saves up a claim by having waited.
// Thread-safety: none; all calls under one mutex of the caller.
class TileQueue {
 public:
  // `threads`: that take units, at least 1.
  explicit TileQueue(int threads);
  ~TileQueue();
  TileQueue(const TileQueue&) = delete;
  TileQueue& operator=(const TileQueue&) = delete;

  struct Entry;

  // Units [begin, end) of a stage of a job.
  struct Units {
    Entry* entry = nullptr;
    TileJob* job = nullptr;
    int stage = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    double claim = 0;  // where the job stands in virtual time once these have run
  };

  // Takes a job in, and returns its number, which is never 0 and never used again. 0 if it has no
  // units: it is not taken, and whoever adds it owes it its Finish. Throws std::bad_alloc, and then
  // has changed nothing.
  std::uint64_t Add(TileJob& job, const JobOptions& options);

  // Takes a job back of which no unit has been taken. False if one has: it runs, or has run. Looks
  // through all jobs.
  bool Remove(std::uint64_t number);

  // The units to run next; none if no job has any that may run now. Several at once where units
  // are so cheap that taking them would cost more than running them.
  std::optional<Units> Pop();

  // The same among the jobs of short units that stand before `claim`.
  std::optional<Units> PopShort(double claim);

  // Says that units have run. True if they were the job's last: it has left the queue, and the
  // caller owes it its Finish, outside of the mutex.
  bool Done(const Units& units);

  // Units that may run now, of all jobs and of those of short units.
  std::int64_t num_ready() const { return num_ready_; }
  std::int64_t num_ready_short() const { return num_ready_short_; }

 private:
  struct Earlier {
    bool operator()(const Entry* a, const Entry* b) const;
  };
  using Ready = std::set<Entry*, Earlier>;

  static bool IsShort(const Entry& entry);
  // Goes to the next stage that has units, from `stage` on. False if there is none.
  static bool EnterStage(Entry& entry, int stage);
  void CountReady(const Entry& entry, std::int64_t units);
  Ready& ReadyOf(const Entry& entry) { return IsShort(entry) ? ready_short_ : ready_long_; }
  // Units of the first of `ready`, which is not empty.
  Units Take(Ready& ready);

  const int threads_;
  std::list<Entry> entries_;
  // Entries that have units that may run. Apart, so that the first of short units need not be
  // looked for.
  Ready ready_short_;
  Ready ready_long_;
  double now_ = 0;  // in virtual time: where the last units taken stood
  std::uint64_t last_number_ = 0;
  std::int64_t num_ready_ = 0;
  std::int64_t num_ready_short_ = 0;
};

}  // namespace attend

#endif  // ATTEND_CORE_EXECUTOR_TILE_QUEUE_H_

// What the executor runs.
#ifndef ATTEND_CORE_EXECUTOR_TILE_JOB_H_
#define ATTEND_CORE_EXECUTOR_TILE_JOB_H_

#include <cstdint>

namespace attend {

// A unit of up to this cost is short: a longer one lets it run in its midst (see Worker).
inline constexpr std::int64_t kShortUnitCost = std::int64_t{1} << 24;

// What a unit knows of the thread that runs it.
class Worker {
 public:
  // In [0, Executor::num_slots()). No two units that have begun and not ended have the same slot,
  // so it may index scratch memory.
  int slot() const { return slot_; }

  // Runs short units of other jobs whose turn it is, under other slots, and returns. To be called
  // by long units every few hundred microseconds, so that nobody waits for their end. Costs next
  // to nothing where there are none.
  virtual void LetOthersRun() = 0;

 protected:
  explicit Worker(int slot) : slot_(slot) {}
  ~Worker() = default;

 private:
  const int slot_;
};

// Work in stages; the units of one stage are independent of each other and may run on any thread
// in any order, and a stage begins when all units of the one before have finished.
class TileJob {
 public:
  virtual ~TileJob() = default;

  virtual int num_stages() const = 0;
  virtual std::int64_t num_units(int stage) const = 0;

  // What a unit of the stage takes, on average: in FLOPs, or what takes as long as that many. At
  // least 1. Jobs share the workers by it.
  virtual std::int64_t unit_cost(int stage) const = 0;

  // Runs one unit. Must not throw or block.
  virtual void RunUnit(int stage, std::int64_t unit, Worker& worker) = 0;

  // Called once, after the last unit, by the thread that finished it (by the one that submits the
  // job if there is no unit), while other jobs may still run. The job may be destroyed by it. Must
  // not throw or block.
  virtual void Finish() = 0;
};

// The common claim of jobs that follow each other: together they get what one job gets. Must
// outlive them.
class FairShare {
 private:
  friend class TileQueue;
  double claim_ = 0;
};

struct JobOptions {
  // Of two jobs that always have units to run, one of twice the weight gets twice the time. > 0.
  double weight = 1;
  FairShare* share = nullptr;  // null: a claim of its own
};

// Runs all of a job here and now, in the midst of a unit of another one, under that one's slot.
void RunInline(TileJob& job, Worker& worker);

}  // namespace attend

#endif  // ATTEND_CORE_EXECUTOR_TILE_JOB_H_

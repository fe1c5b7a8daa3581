#include "core/executor/executor.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <pthread.h>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/executor/cpu_limits.h"

namespace attend {
namespace {

constexpr absl::Duration kLongest = absl::Seconds(60);  // of a wait that must end at once

// Slots of the units that run right now, to see that no two have the same.
class SlotGuard {
 public:
  explicit SlotGuard(const Executor& executor) : busy_(executor.num_slots()) {}

  // Counts violations rather than failing in a worker.
  void Enter(int slot) {
    const bool in_range = slot >= 0 && slot < static_cast<int>(busy_.size());
    if (!in_range || busy_[slot].exchange(true)) ++violations_;
  }
  void Leave(int slot) { busy_[slot] = false; }
  int violations() const { return violations_; }

 private:
  std::vector<std::atomic<bool>> busy_;
  std::atomic<int> violations_{0};
};

// A job that counts what is done to it.
class CountingJob : public TileJob {
 public:
  CountingJob(std::vector<std::int64_t> units, SlotGuard& guard)
      : units_(std::move(units)), guard_(guard) {
    for (const std::int64_t count : units_) runs_.emplace_back(count);
    for (std::size_t stage = 0; stage < units_.size(); ++stage) left_[stage] = units_[stage];
  }

  int num_stages() const override { return static_cast<int>(units_.size()); }
  std::int64_t num_units(int stage) const override { return units_.at(stage); }

  std::int64_t unit_cost(int) const override { return cost; }

  void RunUnit(int stage, std::int64_t unit, Worker& worker) override {
    guard_.Enter(worker.slot());
    for (int before = 0; before < stage; ++before) {
      if (left_[before] != 0) ++out_of_order_;
    }
    if (finished_ != 0) ++out_of_order_;
    ++runs_[stage][unit];
    if (on_unit) on_unit(worker);
    --left_[stage];
    guard_.Leave(worker.slot());
  }

  void Finish() override {
    for (std::size_t stage = 0; stage < units_.size(); ++stage) {
      if (left_[stage] != 0) ++out_of_order_;
    }
    ++finished_;
    if (on_finish) on_finish();
  }

  void ExpectDone() const {
    EXPECT_EQ(finished_, 1);
    EXPECT_EQ(out_of_order_, 0);
    for (const auto& stage : runs_) {
      for (const std::atomic<int>& runs : stage) EXPECT_EQ(runs, 1);
    }
  }

  std::int64_t cost = 1;
  std::function<void(Worker&)> on_unit;
  std::function<void()> on_finish;

 private:
  const std::vector<std::int64_t> units_;
  SlotGuard& guard_;
  std::vector<std::vector<std::atomic<int>>> runs_;
  std::array<std::atomic<std::int64_t>, 4> left_{};
  std::atomic<int> finished_{0};
  std::atomic<int> out_of_order_{0};
};

// Jobs of all kinds: none to many units, one to four stages, empty stages at every place.
std::vector<std::unique_ptr<CountingJob>> MixedJobs(SlotGuard& guard) {
  std::vector<std::unique_ptr<CountingJob>> jobs;
  for (const std::vector<std::int64_t>& units :
       std::vector<std::vector<std::int64_t>>{{1},
                                              {0},
                                              {100},
                                              {0, 0},
                                              {3, 0, 5},
                                              {0, 7},
                                              {7, 0},
                                              {2, 50, 1, 9},
                                              {0, 0, 0, 0},
                                              {1, 1, 1, 1}}) {
    jobs.push_back(std::make_unique<CountingJob>(units, guard));
  }
  return jobs;
}

template <typename Job>
std::vector<TileJob*> Pointers(const std::vector<std::unique_ptr<Job>>& jobs) {
  std::vector<TileJob*> pointers;
  for (const auto& job : jobs) pointers.push_back(job.get());
  return pointers;
}

TEST(Executor, RunsEveryUnitOnceStageByStageAndFinishesEachJobOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    Executor executor({.threads = threads});
    SlotGuard guard(executor);
    for (int repetition = 0; repetition < 100; ++repetition) {
      const auto jobs = MixedJobs(guard);
      executor.Run(Pointers(jobs));
      for (const auto& job : jobs) job->ExpectDone();
    }
    EXPECT_EQ(guard.violations(), 0);
  }
}

TEST(Executor, RunsEachKindOfJobAlone) {
  Executor executor({.threads = 2});
  SlotGuard guard(executor);
  for (const auto& job : MixedJobs(guard)) {
    TileJob* const jobs[] = {job.get()};
    executor.Run(jobs);
    job->ExpectDone();
  }
}

TEST(Executor, ReturnsAtOnceFromNoJobs) {
  Executor executor({.threads = 2});
  executor.Run({});
}

TEST(Executor, FinishesAJobWithoutStagesAndAsksItForNoUnits) {
  Executor executor({.threads = 2});
  SlotGuard guard(executor);
  CountingJob none({}, guard);  // num_units would throw
  CountingJob some({3}, guard);
  TileJob* const jobs[] = {&none, &some};
  executor.Run(jobs);
  none.ExpectDone();
  some.ExpectDone();
}

TEST(Executor, ComputesOnWorkersAndNotOnTheCaller) {
  Executor executor({.threads = 2});
  SlotGuard guard(executor);
  CountingJob job({200}, guard);
  std::atomic<int> on_caller{0};
  const std::thread::id caller = std::this_thread::get_id();
  job.on_unit = [&](Worker&) { on_caller += std::this_thread::get_id() == caller ? 1 : 0; };
  TileJob* const jobs[] = {&job};
  executor.Run(jobs);
  EXPECT_EQ(on_caller, 0);
}

TEST(Executor, FinishesAQuickJobWhileASlowOneStillRuns) {
  Executor executor({.threads = 2});
  for (const bool quick_first : {true, false}) {
    SlotGuard guard(executor);
    CountingJob quick({1, 1, 0}, guard);  // which must not wait for a stage that it does not have
    CountingJob slow({1, 2}, guard);
    absl::Notification quick_finished;
    std::atomic<int> waited_in_vain{0};
    std::atomic<int> slow_units{0};
    quick.on_finish = [&] { quick_finished.Notify(); };
    // One unit of the slow job's last stage ends only after the quick job has finished.
    slow.on_unit = [&](Worker&) {
      if (++slow_units != 2) return;
      waited_in_vain += quick_finished.WaitForNotificationWithTimeout(kLongest) ? 0 : 1;
    };
    std::vector<TileJob*> jobs = {&quick, &slow};
    if (!quick_first) std::swap(jobs[0], jobs[1]);
    executor.Run(jobs);
    EXPECT_EQ(waited_in_vain, 0);
    quick.ExpectDone();
    slow.ExpectDone();
  }
}

TEST(Executor, UsesAllItsThreadsAtOnce) {
  constexpr int kThreads = 3;
  Executor executor({.threads = kThreads});
  SlotGuard guard(executor);
  CountingJob job({kThreads}, guard);
  std::atomic<int> arrived{0};
  std::atomic<int> waited_in_vain{0};
  absl::Notification all_there;
  job.on_unit = [&](Worker&) {
    if (++arrived == kThreads) all_there.Notify();
    waited_in_vain += all_there.WaitForNotificationWithTimeout(kLongest) ? 0 : 1;
  };
  TileJob* const jobs[] = {&job};
  executor.Run(jobs);
  EXPECT_EQ(waited_in_vain, 0);
  EXPECT_EQ(guard.violations(), 0);
}

TEST(Executor, ServesSeveralCallersAtOnce) {
  constexpr int kCallers = 4;
  Executor executor({.threads = 2});
  SlotGuard guard(executor);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&] {
      for (int repetition = 0; repetition < 100; ++repetition) {
        const auto jobs = MixedJobs(guard);
        executor.Run(Pointers(jobs));
        for (const auto& job : jobs) job->ExpectDone();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(guard.violations(), 0);
}

TEST(Executor, LetsAJobJoinWhileAnotherRuns) {
  for (const int threads : {1, 2}) {
    Executor executor({.threads = threads});
    SlotGuard guard(executor);
    CountingJob running({100}, guard);
    CountingJob joining({1, 1}, guard);
    running.cost = joining.cost = kShortUnitCost;  // so that units are taken one by one
    absl::Notification begun, joined, finished;
    std::atomic<int> units{0};
    std::atomic<int> waited_in_vain{0};
    const auto wait = [&](absl::Notification& notification) {
      waited_in_vain += notification.WaitForNotificationWithTimeout(kLongest) ? 0 : 1;
    };
    // The first unit ends when the other job has joined, the last when it has finished.
    running.on_unit = [&](Worker&) {
      const int unit = ++units;
      if (unit == 1) {
        begun.Notify();
        wait(joined);
      } else if (unit == 100) {
        wait(finished);
      }
    };
    joining.on_finish = [&] { finished.Notify(); };
    std::thread submitter([&] {
      begun.WaitForNotification();
      executor.Submit(joining);
      joined.Notify();
    });
    TileJob* const jobs[] = {&running};
    executor.Run(jobs);
    submitter.join();
    EXPECT_EQ(waited_in_vain, 0);
    running.ExpectDone();
    joining.ExpectDone();
    EXPECT_EQ(guard.violations(), 0);
  }
}

TEST(Executor, RunsShortUnitsInTheMidstOfALongOneUnderAnotherSlot) {
  Executor executor({.threads = 1});
  SlotGuard guard(executor);
  CountingJob quick({2, 3}, guard);
  CountingJob lengthy({1}, guard);
  lengthy.cost = 1000 * kShortUnitCost;
  std::atomic<bool> quick_was_done{false};
  lengthy.on_unit = [&](Worker& worker) {
    executor.Submit(quick);
    worker.LetOthersRun();
    quick.ExpectDone();
    quick_was_done = true;
  };
  TileJob* const jobs[] = {&lengthy};
  executor.Run(jobs);
  EXPECT_TRUE(quick_was_done);
  EXPECT_EQ(guard.violations(), 0);
}

TEST(Executor, RunsNoLongUnitInTheMidstOfAnother) {
  Executor executor({.threads = 1});
  SlotGuard guard(executor);
  CountingJob other({1}, guard);
  CountingJob lengthy({1}, guard);
  other.cost = lengthy.cost = 1000 * kShortUnitCost;
  std::atomic<int> units_of_other{0};
  absl::Notification other_finished;
  other.on_unit = [&](Worker&) { ++units_of_other; };
  other.on_finish = [&] { other_finished.Notify(); };
  std::atomic<int> in_the_midst{-1};
  lengthy.on_unit = [&](Worker& worker) {
    executor.Submit(other);
    worker.LetOthersRun();
    in_the_midst = units_of_other.load();
  };
  TileJob* const jobs[] = {&lengthy};
  executor.Run(jobs);
  EXPECT_EQ(in_the_midst, 0);
  ASSERT_TRUE(other_finished.WaitForNotificationWithTimeout(kLongest));
}

TEST(Executor, FinishesASubmittedJobWithoutUnitsAtOnce) {
  Executor executor({.threads = 1});
  SlotGuard guard(executor);
  CountingJob none({0}, guard);
  executor.Submit(none);
  none.ExpectDone();
}

TEST(Executor, RunsAJobInTheMidstOfAUnitWhereToldTo) {
  Executor executor({.threads = 2});
  SlotGuard outer_guard(executor);
  SlotGuard inner_guard(executor);
  CountingJob inner({2, 0, 3}, inner_guard);
  CountingJob outer({1}, outer_guard);
  std::atomic<int> outer_slot{-1};
  std::atomic<int> elsewhere{0};
  inner.on_unit = [&](Worker& worker) { elsewhere += worker.slot() == outer_slot ? 0 : 1; };
  outer.on_unit = [&](Worker& worker) {
    outer_slot = worker.slot();
    RunInline(inner, worker);
    inner.ExpectDone();
  };
  TileJob* const jobs[] = {&outer};
  executor.Run(jobs);
  inner.ExpectDone();
  EXPECT_EQ(elsewhere, 0);
}

TEST(Executor, SeveralExecutorsKeepTheirWorkersApart) {
  Executor first({.threads = 1});
  Executor second({.threads = 2});
  SlotGuard first_guard(first);
  SlotGuard second_guard(second);
  std::thread other([&] {
    for (int repetition = 0; repetition < 100; ++repetition) {
      const auto jobs = MixedJobs(first_guard);
      first.Run(Pointers(jobs));
      for (const auto& job : jobs) job->ExpectDone();
    }
  });
  for (int repetition = 0; repetition < 100; ++repetition) {
    const auto jobs = MixedJobs(second_guard);
    second.Run(Pointers(jobs));
    for (const auto& job : jobs) job->ExpectDone();
  }
  other.join();
  EXPECT_EQ(first_guard.violations() + second_guard.violations(), 0);
}

// A job that is gone once it has finished.
class SelfDestroyingJob : public TileJob {
 public:
  SelfDestroyingJob(std::int64_t units, std::atomic<int>& destroyed)
      : units_(units), destroyed_(destroyed) {}
  ~SelfDestroyingJob() override { ++destroyed_; }

  int num_stages() const override { return 2; }
  std::int64_t num_units(int stage) const override { return stage == 0 ? 1 : units_; }
  std::int64_t unit_cost(int) const override { return 1; }
  void RunUnit(int, std::int64_t, Worker&) override { ++work_; }
  void Finish() override { delete this; }

 private:
  const std::int64_t units_;
  std::atomic<int>& destroyed_;
  std::atomic<int> work_{0};
};

TEST(Executor, LetsAJobBeDestroyedByItsFinish) {
  Executor executor({.threads = 3});
  std::atomic<int> destroyed{0};
  for (int repetition = 0; repetition < 500; ++repetition) {
    std::vector<TileJob*> jobs;
    for (const std::int64_t units : {0, 1, 5, 0, 20}) {
      jobs.push_back(new SelfDestroyingJob(units, destroyed));
    }
    executor.Run(jobs);
  }
  EXPECT_EQ(destroyed, 500 * 5);
}

TEST(Executor, UsesTheUsableCpusUnlessToldOtherwise) {
  EXPECT_EQ(Executor({}).num_threads(), UsableCpus());
  EXPECT_EQ(Executor({.threads = 5}).num_threads(), 5);
}

TEST(Executor, NamesItsThreadsAndMakesThemNicer) {
  Executor executor({.threads = 2, .nice = 5});
  SlotGuard guard(executor);
  CountingJob job({50}, guard);
  std::atomic<int> wrong{0};
  job.on_unit = [&](Worker&) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
    wrong += std::string(name) == "attend-compute" && nice >= 5 ? 0 : 1;
  };
  TileJob* const jobs[] = {&job};
  executor.Run(jobs);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace attend

#include "client/load/runner.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/random/distributions.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace attend::load {

namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

constexpr nanoseconds kTick = std::chrono::milliseconds(100);
constexpr std::chrono::milliseconds kShortestTimeout{1};
constexpr unsigned long kTimerSlackNs = 1;
constexpr std::uint64_t kCancelSeed = 0x9e3779b97f4a7c15;  // a sequence of its own

double Seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// Processor time of this process, in seconds.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Linux lets a sleeper sleep 50 us longer than it asked for; a call must not start so much later.
class PreciseTimers {
 public:
  PreciseTimers() : before_(prctl(PR_GET_TIMERSLACK)) { prctl(PR_SET_TIMERSLACK, kTimerSlackNs); }
  ~PreciseTimers() {
    if (before_ > 0) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_));
  }
  PreciseTimers(const PreciseTimers&) = delete;
  PreciseTimers& operator=(const PreciseTimers&) = delete;

 private:
  int before_;
};

class Runner {
 public:
  Runner(const RunOptions& options, Pacing& pacing, RequestMix& mix, Transport& transport,
         const RunHooks& hooks)
      : options_(options),
        pacing_(pacing),
        mix_(mix),
        transport_(transport),
        hooks_(hooks),
        end_(options.warmup + options.duration),
        random_(options.seed ^ kCancelSeed),
        recorder_(options.warmup, end_, mix.works().size()),
        sample_(options.verify, options.seed) {}

  RunResult Run() {
    const PreciseTimers precise_timers;
    while (StepOnce()) {
    }
    const double wall = Seconds(end_mark_->time - begin_mark_->time);
    const double cpu = end_mark_->cpu_seconds - begin_mark_->cpu_seconds;
    absl::MutexLock lock(&mutex_);
    return {std::move(recorder_), std::move(sample_), wall > 0 ? cpu / wall : 0};
  }

 private:
  // Processor time at a moment of the run.
  struct CpuMark {
    nanoseconds time;
    double cpu_seconds;
  };

  struct Cancellation {
    nanoseconds time;
    std::function<void()> cancel;
    // The soonest is the largest, and so on top of a std::priority_queue.
    bool operator<(const Cancellation& other) const { return time > other.time; }
  };

  // What answers change, as it is at one moment.
  struct State {
    std::int64_t in_flight;
    std::int64_t ended;
  };

  nanoseconds Now() const { return Clock::now() - start_; }

  State Read() {
    absl::MutexLock lock(&mutex_);
    return {in_flight_, recorder_.ended()};
  }

  // False once all is over.
  bool StepOnce() {
    const nanoseconds now = Now();
    const State state = Read();
    Watch(now, state);
    CancelDue(now);
    const Step step = stopped_ ? Step{} : pacing_.Next(now, state.in_flight);
    switch (step.kind) {
      case Step::Kind::kSend:
        Send(step.time);
        return true;
      case Step::Kind::kDrop:
        Drop(step.time);
        return true;
      case Step::Kind::kWait:
        WaitForAnswer(state, step.time);
        return true;
      case Step::Kind::kEnd:
        break;
    }
    if (end_mark_.has_value() && state.in_flight == 0) return false;
    WaitForAnswer(state, end_mark_.has_value() ? next_tick_ : end_);
    return true;
  }

  // What is due by the clock: progress, a stop, and the marks of processor time.
  void Watch(nanoseconds now, const State& state) {
    if (!begin_mark_.has_value() && now >= options_.warmup) begin_mark_ = {now, CpuSeconds()};
    if (!end_mark_.has_value()) {
      stopped_ = now < end_ && hooks_.stop != nullptr && *hooks_.stop;
      if (stopped_ || now >= end_) EndMeasuring(now);
    }
    if (now < next_tick_) return;
    next_tick_ = now + kTick;
    if (hooks_.on_progress) hooks_.on_progress({now, state.ended, EndedOk(), state.in_flight});
  }

  void EndMeasuring(nanoseconds now) {
    end_mark_ = {now, CpuSeconds()};
    if (!begin_mark_.has_value()) begin_mark_ = end_mark_;
    if (!stopped_) return;
    absl::MutexLock lock(&mutex_);
    recorder_.EndAt(now);
  }

  std::int64_t EndedOk() {
    absl::MutexLock lock(&mutex_);
    return recorder_.ended_ok();
  }

  void CancelDue(nanoseconds now) {
    while (!cancellations_.empty() && cancellations_.top().time <= now) {
      cancellations_.top().cancel();
      cancellations_.pop();
    }
  }

  // Until a call ends that had not in `state`; at most until `time`, the next tick or cancellation.
  void WaitForAnswer(const State& state, nanoseconds time) {
    nanoseconds until = std::min(time, next_tick_);
    if (!cancellations_.empty()) until = std::min(until, cancellations_.top().time);
    absl::MutexLock lock(&mutex_);
    while (recorder_.ended() == state.ended) {
      if (answered_.WaitWithTimeout(&mutex_, absl::FromChrono(until - Now()))) return;
    }
  }

  void Send(nanoseconds intended) {
    const Draw draw = mix_.Next();
    const Work& work = mix_.work(draw);
    CallRecord record{.work = draw.work,
                      .tokens = mix_.Tokens(draw),
                      .intended = intended,
                      .sent = Now(),
                      .deadline = options_.ignore_deadlines ? std::nullopt : work.deadline};
    record.given_up = absl::Bernoulli(random_, options_.cancel_share);
    {
      absl::MutexLock lock(&mutex_);
      ++in_flight_;
    }
    std::function<void()> cancel =
        transport_.Send(mix_.Args(draw), CallOptionsFor(work, record),
                        [this, draw, record](absl::StatusOr<AttendResult> answer) {
                          OnAnswer(draw, record, std::move(answer));
                        });
    if (!record.given_up) return;
    const double share_of_time = absl::Uniform<double>(random_, 0, 1);
    const auto after = std::chrono::duration_cast<nanoseconds>(
        share_of_time * std::chrono::duration<double>(options_.cancel_within));
    cancellations_.push({record.sent + after, std::move(cancel)});
  }

  void Drop(nanoseconds intended) {
    const Draw draw = mix_.Next();  // so that the sequence of requests does not depend on timing
    absl::MutexLock lock(&mutex_);
    recorder_.AddDropped(draw.work, intended);
  }

  // A deadline counts from the intended start: the call gets what is left of it.
  CallOptions CallOptionsFor(const Work& work, const CallRecord& record) const {
    CallOptions options{.priority = work.priority, .wait_for_ready = options_.wait_for_ready};
    if (record.deadline.has_value()) {
      const nanoseconds left = *record.deadline - (record.sent - record.intended);
      options.timeout =
          std::max(kShortestTimeout, std::chrono::ceil<std::chrono::milliseconds>(left));
    }
    return options;
  }

  void OnAnswer(const Draw& draw, CallRecord record, absl::StatusOr<AttendResult> answer) {
    record.ended = Now();
    absl::MutexLock lock(&mutex_);
    recorder_.Add(record, answer.status(), answer.ok() ? answer->stats : AttendStats());
    if (answer.ok()) sample_.Offer(draw, *answer);
    --in_flight_;
    answered_.Signal();
  }

  const RunOptions options_;
  Pacing& pacing_;
  RequestMix& mix_;
  Transport& transport_;
  const RunHooks hooks_;
  const nanoseconds end_;
  const Clock::time_point start_ = Clock::now();

  // Of the thread that runs.
  std::mt19937_64 random_;
  std::priority_queue<Cancellation> cancellations_;
  nanoseconds next_tick_{};
  bool stopped_ = false;
  std::optional<CpuMark> begin_mark_;  // of the measured time
  std::optional<CpuMark> end_mark_;

  absl::Mutex mutex_;
  absl::CondVar answered_;
  std::int64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  Recorder recorder_ ABSL_GUARDED_BY(mutex_);
  AnswerSample sample_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

RunResult Run(const RunOptions& options, Pacing& pacing, RequestMix& mix, Transport& transport,
              const RunHooks& hooks) {
  return Runner(options, pacing, mix, transport, hooks).Run();
}

}  // namespace attend::load

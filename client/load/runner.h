// Drives a server with a load, and records what comes of it.
#ifndef ATTEND_CLIENT_LOAD_RUNNER_H_
#define ATTEND_CLIENT_LOAD_RUNNER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "client/load/answer_checks.h"
#include "client/load/pacing.h"
#include "client/load/recorder.h"
#include "client/load/request_mix.h"
#include "client/load/transport.h"

namespace attend::load {

struct RunOptions {
  // Calls start in warmup + duration; those of the warm-up are not counted.
  std::chrono::nanoseconds warmup{};
  std::chrono::nanoseconds duration{};
  // Share of the calls that are given up, each after a random time of up to `cancel_within`.
  double cancel_share = 0;
  std::chrono::nanoseconds cancel_within{};
  std::int64_t verify = 0;  // answers to keep for verification
  std::uint64_t seed = 1;
  bool wait_for_ready = false;
  bool ignore_deadlines = false;  // those of the work: no call has one
};

// A run so far.
struct Progress {
  std::chrono::nanoseconds elapsed{};
  std::int64_t ended = 0;
  std::int64_t ended_ok = 0;
  std::int64_t in_flight = 0;
};

struct RunHooks {
  // Called some times a second, on the thread that runs. May be empty.
  std::function<void(const Progress&)> on_progress;
  // Once true, no call starts any more, and the measured time ends. Null: never.
  const std::atomic<bool>* stop = nullptr;
};

struct RunResult {
  Recorder recorder;
  AnswerSample sample;
  double cpu_cores = 0;  // processor time of this process by time passed, while it measured
};

// Sends from this thread, as `pacing` says, until it ends and every call has been answered.
// `pacing` must end at warmup + duration.
RunResult Run(const RunOptions& options, Pacing& pacing, RequestMix& mix, Transport& transport,
              const RunHooks& hooks = {});

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_RUNNER_H_

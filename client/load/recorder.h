// What became of the calls of a run.
#ifndef ATTEND_CLIENT_LOAD_RECORDER_H_
#define ATTEND_CLIENT_LOAD_RECORDER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/client.h"
#include "client/load/samples.h"

namespace attend::load {

// A call that has ended. Times are counted from the start of the run.
struct CallRecord {
  std::size_t work = 0;
  std::int64_t tokens = 0;  // query tokens
  std::chrono::nanoseconds intended{};
  std::chrono::nanoseconds sent{};
  std::chrono::nanoseconds ended{};
  std::optional<std::chrono::nanoseconds> deadline;  // from `intended`
  bool given_up = false;                             // the generator cancels it
};

// Calls of one status code.
struct CodeCount {
  std::int64_t calls = 0;
  std::int64_t errors = 0;  // of them those that are not the caller's doing
  std::string message;      // of the first error, else of the first call
};

// Some calls: all of a run, or those of one kind of work.
struct Tally {
  std::int64_t calls = 0;     // meant to start in the measured time, those dropped included
  std::int64_t dropped = 0;   // of them never sent, since too many were in flight
  std::int64_t answered = 0;  // OK, in the measured time
  std::int64_t good = 0;      // of them within the deadline
  std::int64_t tokens = 0;    // query tokens of those answered
  std::int64_t flops = 0;     // of those answered
  Samples latency;            // of the calls that ended OK, from their intended start, in seconds
};

// Rates count answers that arrive in the measured time, which begins after the warm-up;
// distributions and codes count calls that were meant to start in it. A call counts as an error
// unless it ended OK, was refused for lack of room (RESOURCE_EXHAUSTED), missed a deadline of its
// work (DEADLINE_EXCEEDED), or was given up by the generator (CANCELLED).
// Thread-safety: for one thread.
class Recorder {
 public:
  // Measures from `begin` until `end`, both from the start of the run.
  Recorder(std::chrono::nanoseconds begin, std::chrono::nanoseconds end, std::size_t works)
      : begin_(begin), end_(end), works_(works) {}

  // `stats`: of a call that ended OK.
  void Add(const CallRecord& record, const absl::Status& status, const AttendStats& stats);
  // A call that was never sent.
  void AddDropped(std::size_t work, std::chrono::nanoseconds intended);
  // Ends the measured time earlier. Answers after it that were counted already stay counted.
  void EndAt(std::chrono::nanoseconds end) { end_ = end; }

  double measured_seconds() const;
  const Tally& total() const { return total_; }
  const std::vector<Tally>& works() const { return works_; }
  const std::map<absl::StatusCode, CodeCount>& codes() const { return codes_; }
  // In seconds; of the calls that ended OK, as the server told.
  const Samples& queue() const { return queue_; }
  const Samples& compute() const { return compute_; }
  // How much later than meant calls were sent, in seconds: the generator's own delay.
  const Samples& lag() const { return lag_; }
  // Calls that ended, over the whole run.
  std::int64_t ended() const { return ended_; }
  std::int64_t ended_ok() const { return ended_ok_; }

 private:
  bool InMeasuredTime(std::chrono::nanoseconds time) const { return time >= begin_ && time < end_; }
  void CountCode(const CallRecord& record, const absl::Status& status);

  std::chrono::nanoseconds begin_;
  std::chrono::nanoseconds end_;
  std::int64_t ended_ = 0;
  std::int64_t ended_ok_ = 0;
  Tally total_;
  std::vector<Tally> works_;
  std::map<absl::StatusCode, CodeCount> codes_;
  Samples queue_;
  Samples compute_;
  Samples lag_;
};

}  // namespace attend::load

#endif  // ATTEND_CLIENT_LOAD_RECORDER_H_

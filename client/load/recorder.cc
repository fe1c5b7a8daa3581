#include "client/load/recorder.h"

#include <algorithm>

namespace attend::load {

namespace {

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

bool IsError(const CallRecord& record, absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kResourceExhausted:
      return false;
    case absl::StatusCode::kDeadlineExceeded:
      return !record.deadline.has_value();
    case absl::StatusCode::kCancelled:
      return !record.given_up;
    default:
      return true;
  }
}

}  // namespace

void Recorder::Add(const CallRecord& record, const absl::Status& status, const AttendStats& stats) {
  ++ended_;
  if (status.ok()) ++ended_ok_;
  const double latency = Seconds(record.ended - record.intended);
  const bool in_time =
      !record.deadline.has_value() || record.ended - record.intended <= *record.deadline;
  const bool counts = InMeasuredTime(record.intended);
  const bool answered = status.ok() && InMeasuredTime(record.ended);
  for (Tally* tally : {&total_, &works_[record.work]}) {
    if (counts) ++tally->calls;
    if (counts && status.ok()) tally->latency.Add(latency);
    if (!answered) continue;
    ++tally->answered;
    if (in_time) ++tally->good;
    tally->tokens += record.tokens;
    tally->flops += stats.flops;
  }
  if (!counts) return;
  lag_.Add(Seconds(record.sent - record.intended));
  CountCode(record, status);
  if (!status.ok()) return;
  queue_.Add(Seconds(stats.queue));
  compute_.Add(Seconds(stats.compute));
}

void Recorder::CountCode(const CallRecord& record, const absl::Status& status) {
  CodeCount& count = codes_[status.code()];
  const bool error = IsError(record, status.code());
  const bool first_error = error && count.errors == 0;
  if (count.calls == 0 || first_error) count.message = std::string(status.message());
  ++count.calls;
  if (error) ++count.errors;
}

void Recorder::AddDropped(std::size_t work, std::chrono::nanoseconds intended) {
  if (!InMeasuredTime(intended)) return;
  for (Tally* tally : {&total_, &works_[work]}) {
    ++tally->calls;
    ++tally->dropped;
  }
}

double Recorder::measured_seconds() const { return std::max(0.0, Seconds(end_ - begin_)); }

}  // namespace attend::load

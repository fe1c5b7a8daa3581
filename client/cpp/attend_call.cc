#include "client/cpp/attend_call.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/call_options.h"
#include "client/cpp/channel.h"
#include "client/cpp/errors.h"
#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "client/cpp/shared_request.h"
#include "client/cpp/status.h"

namespace attend::client_internal {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kShortestTime{1};
constexpr absl::string_view kGivenUp = "the call was given up";

std::optional<Timers::Clock::time_point> DeadlineOf(milliseconds timeout) {
  if (timeout == kNoTimeout) return std::nullopt;
  return Timers::Clock::now() + timeout;
}

absl::Status TooLarge(absl::string_view what, std::int64_t max_message_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(what, " max_message_bytes of this client (",
                                                   max_message_bytes,
                                                   "): raise it, or ask for less in one request"));
}

bool MayTryAgain(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kResourceExhausted;
}

}  // namespace

AttendCall::AttendCall(const CallEnvironment& environment, Carrier& carrier,
                       const CallOptions& call_options)
    : environment_(environment),
      carrier_(carrier),
      call_options_(call_options),
      deadline_(DeadlineOf(call_options.timeout.value_or(environment.options.default_timeout))) {}

absl::Status AttendCall::Fill(const AttentionArgs& args) {
  const std::int64_t limit = environment_.options.max_message_bytes;
  v1::AttendRequest* request = message_.mutable_attend();
  absl::Status status =
      FillRequest(args, call_options_.priority, limit, request, environment_.memory, &slice_);
  if (!status.ok()) return status;
  message_bytes_ = static_cast<std::int64_t>(message_.ByteSizeLong());
  if (message_bytes_ > limit) return TooLarge("the request is larger than", limit);
  // An answer past the limit would end a stream for all of its requests.
  const ResultBytes results = ResultBytesOf(args);
  const auto in_message = [](bool has_target, std::int64_t bytes) {
    return has_target ? 0.0 : static_cast<double>(bytes);
  };
  const v1::OutputOptions& output = request->output();
  const double answer = in_message(output.has_output_target(), results.output) +
                        in_message(output.has_lse_target(), results.lse) +
                        in_message(output.has_weights_target(), results.weights) +
                        in_message(output.has_scores_target(), results.scores);
  if (answer > static_cast<double>(limit)) return TooLarge("the answer is larger than", limit);
  return absl::OkStatus();
}

void AttendCall::Begin(Client::AttendCallback callback) {
  self_ = shared_from_this();
  environment_.calls.Add(this);
  {
    absl::MutexLock lock(&mutex_);
    callback_ = std::move(callback);
    if (deadline_.has_value()) {
      EndAt(*deadline_, absl::DeadlineExceededError("no answer within the call's timeout"),
            &deadline_timer_);
    }
  }
  StartAttempt();
}

void AttendCall::EndAt(Clock::time_point time, absl::Status status, Timers::Id* timer) {
  *timer =
      environment_.timers.Schedule(time, [weak = weak_from_this(), status = std::move(status)] {
        if (const std::shared_ptr<AttendCall> call = weak.lock()) call->End(status);
      });
}

std::optional<nanoseconds> AttendCall::time_left() const {
  if (!deadline_.has_value()) return std::nullopt;
  return std::max<nanoseconds>(kShortestTime, *deadline_ - Clock::now());
}

void AttendCall::Cancel() {
  absl::MutexLock lock(&mutex_);
  if (ended_ || std::exchange(cancelled_, true)) return;
  // On another thread, since callers of Cancel may hold what the callback needs. An attempt that
  // waits its turn never begins.
  environment_.timers.Cancel(attempt_timer_);
  EndAt(Clock::now(), absl::CancelledError(kGivenUp), &attempt_timer_);
}

void AttendCall::StartAttempt() {
  const std::shared_ptr<AttendCall> self = shared_from_this();
  {
    absl::MutexLock lock(&mutex_);
    if (ended_ || cancelled_) return;
    attempting_ = true;
    ++attempt_;
  }
  if (!slice_.present()) return Send();
  const auto go_on = [self](const grpc::Status& status, const std::string& handle) {
    if (!status.ok()) return self->OnEnd({.status = status, .sent = false});
    SetHandle(handle, self->message_.mutable_attend());
    self->Send();
  };
  environment_.memory->WithHandle(slice_, go_on);
}

void AttendCall::Send() {
  if (!IsWanted()) return OnEnd({.status = grpc::Status::CANCELLED, .sent = false});
  std::uint64_t attempt = 0;
  {
    absl::MutexLock lock(&mutex_);
    attempt = attempt_;
  }
  std::function<void()> give_up = carrier_.Send(shared_from_this());
  {
    absl::MutexLock lock(&mutex_);
    if (!attempting_ || attempt != attempt_) return;  // it has ended
    if (!ended_) {
      give_up_.swap(give_up);
      return;
    }
  }
  give_up();
}

void AttendCall::OnEnd(AttemptEnd end) {
  const std::shared_ptr<AttendCall> self = shared_from_this();
  if (!end.settled && slice_.present()) slice_.Retire();
  absl::StatusOr<AttendResult> result = absl::CancelledError(kGivenUp);
  if (IsWanted()) {
    if (end.status.ok()) {
      result = ToResult(end.response, slice_);
    } else {
      result = ToAbslStatus(end.status, environment_.options.max_message_bytes);
      const std::optional<milliseconds> delay = NextAttempt(end, result.status());
      const absl::Status prepared =
          delay.has_value() ? PrepareNext(end, result.status()) : absl::OkStatus();
      if (!prepared.ok()) {
        result = prepared;
      } else if (delay.has_value() && AttemptAgain(*delay)) {
        return;
      }
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    attempting_ = false;
    give_up_ = nullptr;
  }
  End(std::move(result));
}

bool AttendCall::IsWanted() {
  absl::MutexLock lock(&mutex_);
  return !ended_ && !cancelled_;
}

bool AttendCall::AttemptAgain(milliseconds delay) {
  absl::MutexLock lock(&mutex_);
  if (ended_ || cancelled_) return false;
  attempting_ = false;
  give_up_ = nullptr;
  attempt_timer_ = environment_.timers.Schedule(Clock::now() + delay, [weak = weak_from_this()] {
    if (const std::shared_ptr<AttendCall> call = weak.lock()) call->StartAttempt();
  });
  return true;
}

std::optional<milliseconds> AttendCall::NextAttempt(const AttemptEnd& end,
                                                    const absl::Status& status) {
  if (absl::IsNotFound(status) && slice_.present() && !std::exchange(renewed_, true)) {
    return milliseconds(0);
  }
  if (!MayTryAgain(status.code())) return std::nullopt;
  if (absl::IsUnavailable(status) && !end.sent && call_options_.wait_for_ready) {
    ++unsent_;
    return Backoff();
  }
  const RetryOptions& retry = environment_.options.retry;
  if (++failures_ >= retry.max_attempts) return std::nullopt;
  if (message_bytes_ > RetryBufferBytes(environment_.options)) return std::nullopt;
  if (end.pushback.has_value()) {
    return end.pushback->count() < 0 ? std::nullopt : end.pushback;
  }
  const std::optional<milliseconds> asked = GetRetryDelay(status);
  return asked.has_value() ? *asked : Backoff();
}

milliseconds AttendCall::Backoff() const {
  const RetryOptions& retry = environment_.options.retry;
  const double longest =
      std::min(static_cast<double>(retry.max_backoff.count()),
               static_cast<double>(retry.initial_backoff.count()) *
                   std::pow(retry.backoff_multiplier, std::max(0, failures_ + unsent_ - 1)));
  thread_local absl::InsecureBitGen generator;
  return milliseconds(std::llround(absl::Uniform<double>(generator, 0, longest)));
}

absl::Status AttendCall::PrepareNext(const AttemptEnd& end, const absl::Status& status) {
  if (!slice_.present()) return absl::OkStatus();
  const bool forgotten = absl::IsNotFound(status);
  if (forgotten) environment_.memory->Forget(slice_);
  if (!forgotten && end.settled) return absl::OkStatus();
  return MoveParts(*environment_.memory, environment_.options.max_message_bytes, &slice_,
                   message_.mutable_attend());
}

void AttendCall::End(absl::StatusOr<AttendResult> result) {
  const std::shared_ptr<AttendCall> self = shared_from_this();
  Client::AttendCallback callback;
  std::function<void()> give_up;
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    first = !std::exchange(ended_, true);
    callback.swap(callback_);
    give_up.swap(give_up_);
    environment_.timers.Cancel(deadline_timer_);
    environment_.timers.Cancel(attempt_timer_);
  }
  if (!first) return LeaveIfOver();  // the attempt was what the call still waited for
  if (give_up) give_up();
  try {
    callback(std::move(result));
  } catch (...) {
    // It must not; but as where gRPC calls back, it ends nothing but itself.
  }
  callback = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    called_back_ = true;
  }
  LeaveIfOver();
}

void AttendCall::LeaveIfOver() {
  std::shared_ptr<AttendCall> self;
  {
    absl::MutexLock lock(&mutex_);
    if (attempting_ || !called_back_) return;
    self = std::move(self_);
  }
  if (self == nullptr) return;  // another thread is at it
  slice_.Release();
  environment_.calls.Remove(this);
}

}  // namespace attend::client_internal

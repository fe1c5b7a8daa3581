#include "client/cpp/request_stream.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/status.h"

namespace attend::client_internal {

namespace {

void SetTimeout(const Attempt& attempt, v1::AttendRequest* request) {
  const std::optional<std::chrono::nanoseconds> left = attempt.time_left();
  if (!left.has_value()) return;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(*left);
  request->mutable_timeout()->set_seconds(seconds.count());
  request->mutable_timeout()->set_nanos(static_cast<std::int32_t>((*left - seconds).count()));
}

grpc::Status ToGrpcStatus(const v1::Error& error) {
  return grpc::Status(static_cast<grpc::StatusCode>(error.code()), error.message(),
                      error.SerializeAsString());
}

// What the end of a stream means for a request that it leaves unanswered.
grpc::Status Meaning(const grpc::Status& end, std::size_t request_bytes) {
  switch (end.error_code()) {
    case grpc::StatusCode::OK:
      return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                          "the server ended the stream without an answer");
    case grpc::StatusCode::UNIMPLEMENTED:
      return grpc::Status(
          grpc::StatusCode::UNIMPLEMENTED,
          "the server offers no AttendStream; leave use_stream off (" + end.error_message() + ")");
    default:
      break;
  }
  // One message past a limit ends the stream for all of them.
  const std::optional<std::int64_t> limit = BrokenSizeLimit(end);
  if (limit.has_value() && request_bytes <= static_cast<std::size_t>(*limit)) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                        "another request of the stream, or its answer, was too large");
  }
  return end;
}

}  // namespace

std::shared_ptr<RequestStream> RequestStream::Open(v1::AttentionService::Stub& stub,
                                                   std::shared_ptr<CallsInFlight> calls) {
  const std::shared_ptr<RequestStream> stream(new RequestStream(std::move(calls)));
  stream->self_ = stream;
  stream->calls_->Add(&stream->context_);
  stub.async()->AttendStream(stream->context_.get(), stream.get());
  stream->AddHold();  // writes start on any thread
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

bool RequestStream::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

std::optional<std::uint64_t> RequestStream::Send(const std::shared_ptr<Attempt>& attempt) {
  std::uint64_t id = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return std::nullopt;
    id = ++last_id_;
    in_flight_[id].attempt = attempt;
    queue_.push_back({.id = id});
  }
  WriteNext();
  return id;
}

void RequestStream::EndWith(const std::shared_ptr<Attempt>& attempt) {
  grpc::Status end;
  {
    absl::MutexLock lock(&mutex_);
    if (!end_.has_value()) {
      in_flight_[++last_id_].attempt = attempt;  // OnDone tells it
      return;
    }
    end = *end_;
  }
  attempt->OnEnd(
      {.status = Meaning(end, attempt->message().ByteSizeLong()), .sent = false, .settled = true});
}

void RequestStream::Cancel(std::uint64_t id) {
  std::shared_ptr<Attempt> unsent;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = in_flight_.find(id);
    if (found == in_flight_.end() || ended_) return;  // ended: OnDone is near
    if (found->second.begun) {
      queue_.push_front({.id = id, .cancel = true});
    } else {
      unsent = std::move(found->second.attempt);
      in_flight_.erase(found);  // its place in the queue becomes a cancel; see TakeOutgoing
    }
  }
  if (unsent != nullptr) {
    unsent->OnEnd({.status = grpc::Status::CANCELLED, .sent = false});
  } else {
    WriteNext();
  }
}

const v1::AttendStreamRequest* RequestStream::TakeOutgoing() {
  current_ = queue_.front();
  queue_.pop_front();
  const auto found = in_flight_.find(current_.id);
  // What was given up before it was written is not sent, but something is: what was written last
  // may lie in gRPC's buffer, with the promise that more follows. The server ignores a cancel of
  // what it does not know.
  if (current_.cancel || found == in_flight_.end()) {
    current_.cancel = true;
    cancel_.set_id(current_.id);
    cancel_.mutable_cancel();
    return &cancel_;
  }
  found->second.begun = true;
  current_attempt_ = found->second.attempt;
  v1::AttendStreamRequest& message = current_attempt_->message();
  message.set_id(current_.id);
  SetTimeout(*current_attempt_, message.mutable_attend());
  return &message;
}

void RequestStream::WriteNext() {
  const std::shared_ptr<RequestStream> self = shared_from_this();
  mutex_.Lock();
  while (!ended_ && !writing_ && !queue_.empty()) {
    const v1::AttendStreamRequest* message = TakeOutgoing();
    grpc::WriteOptions options;
    if (!queue_.empty()) options.set_buffer_hint();
    writing_ = true;
    ++starting_;
    mutex_.Unlock();
    StartWrite(message, options);
    mutex_.Lock();
    --starting_;
  }
  const bool let_go = held_ && ended_ && starting_ == 0;
  if (let_go) held_ = false;
  mutex_.Unlock();
  if (let_go) RemoveHold();
}

void RequestStream::OnWriteDone(bool ok) {
  std::optional<v1::AttendStreamResponse> answer;
  std::shared_ptr<Attempt> written;  // goes after the lock
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    written = std::move(current_attempt_);
    const auto found = in_flight_.find(current_.id);
    if (!current_.cancel && found != in_flight_.end()) found->second.sent = ok;
    answer.swap(early_answer_);
  }
  if (answer.has_value()) Answer(*answer);
  WriteNext();
}

void RequestStream::OnReadDone(bool ok) {
  if (!ok) {
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    WriteNext();  // nothing, but that it lets the hold go
    return;
  }
  v1::AttendStreamResponse answer;
  answer.Swap(&incoming_);
  StartRead(&incoming_);  // the next answer need not wait for what the callers do with this one
  Answer(answer);
}

void RequestStream::Answer(v1::AttendStreamResponse& answer) {
  std::shared_ptr<Attempt> attempt;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = in_flight_.find(answer.id());
    if (found == in_flight_.end()) return;
    if (writing_ && !current_.cancel && current_.id == answer.id()) {
      early_answer_.emplace().Swap(&answer);
      return;
    }
    attempt = std::move(found->second.attempt);
    in_flight_.erase(found);
  }
  AttemptEnd end;
  if (answer.has_response()) {
    end.response.Swap(answer.mutable_response());
  } else if (answer.has_error() && answer.error().code() != 0) {
    end.status = ToGrpcStatus(answer.error());
  } else {
    end.status = grpc::Status(grpc::StatusCode::INTERNAL, "the server's answer is empty");
  }
  attempt->OnEnd(std::move(end));
}

void RequestStream::OnDone(const grpc::Status& status) {
  std::vector<InFlight> left;
  {
    absl::MutexLock lock(&mutex_);
    end_ = status;
    for (auto& [id, in_flight] : in_flight_) left.push_back(std::move(in_flight));
    in_flight_.clear();
    queue_.clear();
  }
  // A server that says itself why the stream ends has finished with all that it has read.
  const bool settled = !status.error_details().empty();
  for (const InFlight& in_flight : left) {
    const std::size_t bytes = in_flight.attempt->message().ByteSizeLong();
    in_flight.attempt->OnEnd({.status = Meaning(status, bytes),
                              .sent = in_flight.sent,
                              .settled = settled || !in_flight.sent});
  }
  const std::shared_ptr<RequestStream> self = std::move(self_);
  context_.Release();
  calls_->Remove(&context_);
}

}  // namespace attend::client_internal

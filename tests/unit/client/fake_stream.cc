#include "tests/unit/client/fake_stream.h"

#include <utility>

#include "attend/v1/error.pb.h"

namespace attend {

namespace {

v1::Error ToError(const grpc::Status& status) {
  v1::Error error;
  if (error.ParseFromString(status.error_details()) && error.code() != 0) return error;
  error.set_code(status.error_code());
  error.set_message(status.error_message());
  return error;
}

}  // namespace

void FakeStream::End(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(ended_, true)) return;
  Finish(status);
}

void FakeStream::OnReadDone(bool ok) {
  if (!ok) return End(grpc::Status::OK);
  Handle(incoming_);
  absl::MutexLock lock(&mutex_);
  if (!ended_) StartRead(&incoming_);
}

void FakeStream::Handle(const v1::AttendStreamRequest& message) {
  v1::AttendStreamResponse answer;
  answer.set_id(message.id());
  if (message.has_cancel()) {
    {
      absl::MutexLock lock(&mutex_);
      if (held_.erase(message.id()) == 0) return;
    }
    hooks_.on_cancel();
    *answer.mutable_error() = ToError({grpc::StatusCode::CANCELLED, "given up"});
  } else {
    const auto status = hooks_.decide(message.attend(), answer.mutable_response());
    if (!status.has_value()) {
      absl::MutexLock lock(&mutex_);
      held_.insert(message.id());
      return;
    }
    if (!status->ok()) *answer.mutable_error() = ToError(*status);
  }
  absl::MutexLock lock(&mutex_);
  answers_.push_back(std::move(answer));
  WriteIfIdle();
}

void FakeStream::WriteIfIdle() {
  if (writing_ || ended_ || answers_.empty()) return;
  writing_ = true;
  StartWrite(&answers_.front());
}

void FakeStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  answers_.pop_front();
  if (ok) WriteIfIdle();
}

void FakeStream::OnDone() {
  hooks_.on_done(this);
  delete this;
}

}  // namespace attend

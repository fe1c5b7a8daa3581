#include "server/rpc/attend_stream.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "server/wire/attend_response.h"
#include "server/wire/status.h"
#include "server/wire/unknown_fields.h"

namespace attend {

// Keeps its stream alive, as the stream keeps it while it is in flight.
class AttendStream::Request final : public AttendJob {
 public:
  Request(const AttentionServiceOptions& options, std::shared_ptr<AttendStream> stream)
      : AttendJob(options, Method::kAttendStream), stream_(std::move(stream)) {}

  const v1::AttendStreamRequest& message() const { return received().stream_request(); }
  std::uint64_t id() const { return message().id(); }

  // OK if the message asks for attention.
  absl::Status CheckKind() const {
    absl::Status status = RefuseUnknownFields(message(), "request");
    if (status.ok() && !message().has_attend()) {
      status = InvalidField("attend", "is missing; expected attend or cancel");
    }
    return status;
  }

  // Its answer is the stream's end.
  void MakeFatal() { fatal_ = true; }
  bool fatal() const { return fatal_; }

  // The next one of those that are given up together: a list that needs no memory.
  RequestPtr& next_given_up() { return next_given_up_; }

 private:
  void OnAnswer(AttendAnswer& answer) override {
    // The request may go while the stream works, and the stream with it.
    const std::shared_ptr<AttendStream> stream = stream_;
    stream->Answered(*this, answer);
  }

  const std::shared_ptr<AttendStream> stream_;
  bool fatal_ = false;
  RequestPtr next_given_up_;
};

AttendStream* AttendStream::Open(const AttentionServiceOptions& options, SendWatch& watch,
                                 grpc::CallbackServerContext& context, OpenStreams& open) {
  const std::shared_ptr<AttendStream> stream(new AttendStream(options, watch, context, open));
  const std::optional<TraceContext>& trace = stream->facts_.trace;
  if (trace.has_value()) context.AddTrailingMetadata(kTraceMetadata, AnswerTraceParent(*trace));
  const bool draining = open.Add(stream.get());
  stream->self_ = stream;
  options.metrics->StreamOpened();
  if (draining) stream->Drain();
  stream->Proceed();
  return stream.get();
}

AttendStream::AttendStream(const AttentionServiceOptions& options, SendWatch& watch,
                           grpc::CallbackServerContext& context, OpenStreams& open)
    : options_(options),
      facts_(CallFacts::Of(context, options)),
      watch_(watch),
      open_(open),
      sending_(context) {}

void AttendStream::OnDone() {
  open_.Remove(this);
  options_.metrics->StreamClosed();
  self_.reset();
}

void AttendStream::OnReadDone(bool ok) {
  bool wanted = false;
  {
    absl::MutexLock lock(&mutex_);
    if (!ok) half_closed_ = true;
    wanted = handling_ = ok && !draining_ && !end_.has_value();
  }
  if (wanted) Handle(incoming_);
  incoming_.Clear();
  {
    absl::MutexLock lock(&mutex_);
    reading_ = handling_ = false;
  }
  Proceed();
}

void AttendStream::Handle(grpc::ByteBuffer& message) {
  RequestPtr request;
  absl::Status status;
  try {
    request = std::make_shared<Request>(options_, shared_from_this());
    status = request->Read(message);
    // A cancel with more to say than this server knows is refused as a request is.
    if (status.ok() && request->message().has_cancel() &&
        RefuseUnknownFields(request->message(), "request").ok()) {
      CancelRequest(request->id());
      return;
    }
    // Before it is in flight: from there on nothing may throw.
    const absl::Status kind = status.ok() ? request->CheckKind() : absl::OkStatus();
    if (status.ok()) status = Admit(request);
    if (!status.ok()) request->MakeFatal();
    status.Update(kind);
  } catch (const std::bad_alloc&) {
    End(OutOfMemory());
    return;
  }
  request->Start(status, facts_);
}

absl::Status AttendStream::Admit(const RequestPtr& request) {
  absl::MutexLock lock(&mutex_);
  if (in_flight_.try_emplace(request->id(), request).second) {
    if (end_.has_value()) request->Cancel();  // with those that were in flight then
    return absl::OkStatus();
  }
  return InvalidField("id", absl::StrCat("is ", request->id(),
                                         ", which is in flight already; expected another one"));
}

void AttendStream::CancelRequest(std::uint64_t id) {
  RequestPtr request;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = in_flight_.find(id);
    if (found == in_flight_.end()) return;
    request = found->second;
  }
  request->Cancel();
}

void AttendStream::Answered(Request& request, AttendAnswer& answer) {
  if (request.fatal()) {
    End(std::move(answer.status));
    return;
  }
  if (Enqueue(request, answer)) {
    Proceed();
  } else {
    End(OutOfMemory());
  }
}

bool AttendStream::Enqueue(Request& request, AttendAnswer& answer) {
  bool enqueued = true;
  RequestPtr answered;  // goes after the lock
  try {
    if (!answer.status.ok()) {
      enqueued = !answer.status.error_details().empty();  // else there was no memory for them
      grpc::ByteBuffer error = StreamError(answer.status, request.id());
      answer.message.Swap(&error);
    }
  } catch (const std::bad_alloc&) {
    enqueued = false;
  }
  absl::MutexLock lock(&mutex_);
  const auto found = in_flight_.find(request.id());
  answered = std::move(found->second);
  in_flight_.erase(found);
  if (end_.has_value() || !enqueued) return enqueued;
  try {
    answers_.emplace_back().Swap(&answer.message);
  } catch (const std::bad_alloc&) {
    enqueued = false;
  }
  return enqueued;
}

void AttendStream::End(grpc::Status status) {
  RequestPtr given_up;
  {
    absl::MutexLock lock(&mutex_);
    // Who ended it before has given up what is in flight.
    if (!end_.has_value()) {
      end_ = std::move(status);
      for (const auto& [id, request] : in_flight_) {
        request->next_given_up() = std::exchange(given_up, request);
      }
    }
  }
  while (given_up != nullptr) {
    given_up->Cancel();
    given_up = std::exchange(given_up->next_given_up(), nullptr);
  }
  Proceed();
}

void AttendStream::OnWriteDone(bool ok) {
  watch_.End(sending_);
  outgoing_.Clear();
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) answers_.clear();  // the call is broken; OnCancel does the rest
  }
  Proceed();
}

void AttendStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    answers_.clear();
  }
  End(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone, or its time is over"));
}

void AttendStream::Drain() {
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
  }
  Proceed();
}

struct AttendStream::Todo {
  bool read = false;
  bool write = false;
  bool more_to_write = false;
  std::optional<grpc::Status> finish;

  bool empty() const { return !read && !write && !finish.has_value(); }
};

// A thread that finds another one at it leaves its work to that one, which looks again before it
// goes: so calls of gRPC never overlap, and Finish is the last of them.
void AttendStream::Proceed() {
  mutex_.Lock();
  while (!proceeding_) {
    Todo todo = NextTodo();
    if (todo.empty()) break;
    proceeding_ = true;
    mutex_.Unlock();
    if (todo.read) StartRead(&incoming_);
    if (todo.write) {
      watch_.Begin(sending_);
      grpc::WriteOptions options;
      if (todo.more_to_write) options.set_buffer_hint();
      StartWrite(&outgoing_, options);
    }
    if (todo.finish.has_value()) Finish(*std::move(todo.finish));
    mutex_.Lock();
    proceeding_ = false;
  }
  mutex_.Unlock();
}

AttendStream::Todo AttendStream::NextTodo() {
  Todo todo;
  if (!writing_ && !answers_.empty()) {
    writing_ = todo.write = true;
    outgoing_.Swap(&answers_.front());
    answers_.pop_front();
    // gRPC may hold back what has more to follow. The first answer has the call's initial metadata
    // with it: held back, it would be for ever, as nothing else sends those.
    todo.more_to_write = has_written_ && !answers_.empty();
    has_written_ = true;
  }
  if (MayRead()) reading_ = todo.read = true;
  if (MayFinish()) {
    finished_ = true;
    todo.finish = TakeFinalStatus();
  }
  return todo;
}

bool AttendStream::MayRead() const {
  if (reading_ || half_closed_ || draining_ || end_.has_value()) return false;
  const std::size_t held = in_flight_.size() + answers_.size() + (writing_ ? 1 : 0);
  return held < static_cast<std::size_t>(options_.max_stream_requests);
}

bool AttendStream::MayFinish() const {
  const bool over = half_closed_ || draining_ || end_.has_value();
  return over && !finished_ && !handling_ && !writing_ && answers_.empty() && in_flight_.empty();
}

grpc::Status AttendStream::TakeFinalStatus() {
  if (end_.has_value()) return *std::move(end_);
  if (half_closed_) return grpc::Status::OK;
  try {
    return ToGrpcStatus(absl::UnavailableError("the server is shutting down; what has no answer "
                                               "was not computed"),
                        absl::ZeroDuration());
  } catch (const std::bad_alloc&) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
  }
}

}  // namespace attend

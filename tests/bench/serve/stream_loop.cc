#include "tests/bench/serve/stream_loop.h"

#include <cstdint>
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <memory>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "attend/v1/attention.pb.h"

namespace attend::bench {

namespace {

using Clock = std::chrono::steady_clock;
using google::protobuf::io::CodedOutputStream;

constexpr char kStreamMethod[] = "/attend.v1.AttentionService/AttendStream";
constexpr std::uint32_t kVarint = 0;  // wire types
constexpr std::uint32_t kLengthDelimited = 2;

constexpr std::uint32_t Tag(int field, std::uint32_t wire_type) {
  return static_cast<std::uint32_t>(field) << 3 | wire_type;
}

// An AttendStreamRequest around a request that is serialized already.
grpc::ByteBuffer Framed(std::uint64_t id, const grpc::Slice& request) {
  std::uint8_t prefix[32];
  std::uint8_t* end = prefix;
  end = CodedOutputStream::WriteTagToArray(Tag(v1::AttendStreamRequest::kIdFieldNumber, kVarint),
                                           end);
  end = CodedOutputStream::WriteVarint64ToArray(id, end);
  end = CodedOutputStream::WriteTagToArray(
      Tag(v1::AttendStreamRequest::kAttendFieldNumber, kLengthDelimited), end);
  end = CodedOutputStream::WriteVarint64ToArray(request.size(), end);
  const grpc::Slice slices[] = {grpc::Slice(prefix, static_cast<std::size_t>(end - prefix)),
                                request};
  return {slices, 2};
}

// Whether an AttendStreamResponse answers with an error: told by its tags, without parsing a
// response. False too for what is no such message, which nobody sends here.
bool IsError(grpc::ByteBuffer& message) {
  // Wherever the message is cut into slices: many small ones share a read of the socket.
  grpc::ProtoBufferReader reader(&message);
  google::protobuf::io::CodedInputStream input(&reader);
  for (std::uint32_t tag = input.ReadTag(); tag != 0; tag = input.ReadTag()) {
    if (tag == Tag(v1::AttendStreamResponse::kErrorFieldNumber, kLengthDelimited)) return true;
    std::uint64_t id = 0;
    if (tag != Tag(v1::AttendStreamResponse::kIdFieldNumber, kVarint)) return false;
    if (!input.ReadVarint64(&id)) return true;
  }
  return true;  // neither a response nor an error
}

// One stream that keeps requests in flight until `end`, and then waits for its answers.
class StreamRun final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  StreamRun(grpc::GenericStub& stub, const grpc::Slice& request, int in_flight,
            Clock::time_point end)
      : request_(request), wanted_(in_flight), end_(end) {
    stub.PrepareBidiStreamingCall(&context_, kStreamMethod, {}, this);
    StartRead(&answer_);
    StartCall();
    absl::MutexLock lock(&mutex_);
    WriteIfWanted();
  }

  grpc::Status Wait() {
    ended_.WaitForNotification();
    return status_;
  }
  std::int64_t answers() const { return answers_; }
  std::int64_t errors() const { return errors_; }
  Clock::time_point last() const { return last_; }

 private:
  void WriteIfWanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || closed_) return;
    if (Clock::now() >= end_) {
      closed_ = true;
      StartWritesDone();
    } else if (in_flight_ < wanted_) {
      writing_ = true;
      ++in_flight_;
      message_ = Framed(next_id_++, request_);
      StartWrite(&message_);
    }
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (ok) WriteIfWanted();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const bool error = IsError(answer_);
    StartRead(&answer_);
    absl::MutexLock lock(&mutex_);
    ++answers_;
    if (error) ++errors_;
    --in_flight_;
    last_ = Clock::now();
    WriteIfWanted();
  }

  void OnDone(const grpc::Status& status) override {
    status_ = status;
    ended_.Notify();
  }

  grpc::ClientContext context_;
  const grpc::Slice request_;
  const int wanted_;
  const Clock::time_point end_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;

  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  // Read once the stream has ended.
  std::int64_t answers_ = 0;
  std::int64_t errors_ = 0;
  Clock::time_point last_;
  grpc::Status status_;
  absl::Notification ended_;
};

}  // namespace

bool OffersStreams(RawClient& client, const std::string& request) {
  StreamRun stream(client.stub(0), grpc::Slice(request), 1, Clock::now());
  const grpc::Status status = stream.Wait();
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return false;
  if (!status.ok()) Die("AttendStream failed: " + status.error_message());
  return true;
}

double StreamLoopRate(RawClient& client, const std::string& request, const Cell& cell,
                      std::chrono::nanoseconds duration) {
  const grpc::Slice slice(request);
  const Clock::time_point begin = Clock::now();
  std::vector<std::unique_ptr<StreamRun>> streams;
  for (int i = 0; i < cell.connections; ++i) {
    streams.push_back(
        std::make_unique<StreamRun>(client.stub(i), slice, cell.in_flight, begin + duration));
  }
  std::int64_t answers = 0;
  Clock::time_point last = begin;
  for (const std::unique_ptr<StreamRun>& stream : streams) {
    const grpc::Status status = stream->Wait();
    if (!status.ok()) Die("AttendStream failed: " + status.error_message());
    if (stream->errors() > 0) Die("a request on AttendStream failed");
    answers += stream->answers();
    last = std::max(last, stream->last());
  }
  return static_cast<double>(answers) / std::chrono::duration<double>(last - begin).count();
}

}  // namespace attend::bench

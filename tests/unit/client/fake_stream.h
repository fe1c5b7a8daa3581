// The stream of the fake server.
#ifndef ATTEND_TESTS_UNIT_CLIENT_FAKE_STREAM_H_
#define ATTEND_TESTS_UNIT_CLIENT_FAKE_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <grpcpp/grpcpp.h>
#include <optional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "attend/v1/attention.grpc.pb.h"

namespace attend {

// What to do with a request: answer with the status (and the response, if it is OK), or hold it.
using DecideRequest = std::function<std::optional<grpc::Status>(const v1::AttendRequest& request,
                                                                v1::AttendResponse* response)>;

class FakeStream;

struct FakeStreamHooks {
  DecideRequest decide;
  std::function<void()> on_cancel;           // a message that gives a held request up
  std::function<void(FakeStream*)> on_done;  // the stream goes
};

// Thread-safety: safe from any thread.
class FakeStream final
    : public grpc::ServerBidiReactor<v1::AttendStreamRequest, v1::AttendStreamResponse> {
 public:
  explicit FakeStream(FakeStreamHooks hooks) : hooks_(std::move(hooks)) { StartRead(&incoming_); }

  // Ends the stream; what has no answer gets none.
  void End(const grpc::Status& status);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override;

  void Handle(const v1::AttendStreamRequest& message);
  void WriteIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FakeStreamHooks hooks_;
  v1::AttendStreamRequest incoming_;
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::uint64_t> held_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::AttendStreamResponse> answers_ ABSL_GUARDED_BY(mutex_);  // the first is written
};

}  // namespace attend

#endif  // ATTEND_TESTS_UNIT_CLIENT_FAKE_STREAM_H_

// A small attention server inside the test's process: it computes with the float64 reference and
// misbehaves on request.
#ifndef ATTEND_TESTS_UNIT_CLIENT_FAKE_SERVER_H_
#define ATTEND_TESTS_UNIT_CLIENT_FAKE_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "attend/v1/attention.grpc.pb.h"
#include "tests/unit/client/fake_stream.h"

namespace attend {

class FakeService final : public v1::AttentionService::CallbackService {
 public:
  // Waits for its streams, which the server must have ended.
  ~FakeService() override;

  // The next `count` requests, by Attend or on a stream, fail so; by Attend with these trailing
  // metadata.
  void FailNext(int count, grpc::Status status,
                std::vector<std::pair<std::string, std::string>> trailers = {});
  // Requests from now on are never answered: they end when their caller gives up.
  void HoldCalls();
  // Requests from now on are answered again.
  void StopHolding();
  // Ends the streams that are open.
  void EndStreams(const grpc::Status& status);
  // Streams from now on end at once.
  void RefuseStreams(const grpc::Status& status);
  // Requests are answered with an output of so many zero floats instead of computing.
  void AnswerZeros(std::int64_t count);
  // Requests are answered with exactly this.
  void Answer(v1::AttendResponse response);

  int attempts() const;
  int streams() const;  // that were opened
  // How many connections the calls came from.
  int peers() const;
  // The requests that arrived, oldest first, without tensors' data.
  std::vector<v1::AttendRequest> requests() const;
  // A value of the last call's metadata; empty if it had none of this name.
  std::string metadata(const std::string& name) const;
  // Blocks until so many calls are held.
  void WaitUntilHeld(int count);
  // Blocks until so many held requests on streams were given up.
  void WaitUntilCancelled(int count);

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const v1::AttendRequest* request,
                                   v1::AttendResponse* response) override;
  grpc::ServerBidiReactor<v1::AttendStreamRequest, v1::AttendStreamResponse>* AttendStream(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;

 private:
  void Record(const grpc::CallbackServerContext& context, const v1::AttendRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How a recorded request ends; nothing if it is held.
  std::optional<grpc::Status> Decide(const v1::AttendRequest& request, v1::AttendResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  int failures_left_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> trailers_ ABSL_GUARDED_BY(mutex_);
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  int held_ ABSL_GUARDED_BY(mutex_) = 0;
  int cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<FakeStream*> streams_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> refusal_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<v1::AttendResponse> answer_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> peers_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::AttendRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> metadata_ ABSL_GUARDED_BY(mutex_);
};

// The service on a port of its own (or a Unix socket), with the standard health service.
class FakeServer {
 public:
  // `address`: as gRPC takes it. `max_receive_bytes`: -1 for no limit.
  explicit FakeServer(const std::string& address = "127.0.0.1:0", int max_receive_bytes = -1);
  ~FakeServer();

  FakeService& service() { return service_; }
  // For ClientOptions.target.
  const std::string& target() const { return target_; }
  // Of the attention service and of the server as a whole.
  void SetServing(bool serving);

 private:
  FakeService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
};

}  // namespace attend

#endif  // ATTEND_TESTS_UNIT_CLIENT_FAKE_SERVER_H_

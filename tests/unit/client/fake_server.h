// A small attention server inside the test's process: it computes with the float64 reference and
// misbehaves on request.
#ifndef ATTEND_TESTS_UNIT_CLIENT_FAKE_SERVER_H_
#define ATTEND_TESTS_UNIT_CLIENT_FAKE_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "attend/v1/attention.grpc.pb.h"

namespace attend {

class FakeService final : public v1::AttentionService::CallbackService {
 public:
  // The next `count` Attend calls fail so, with these trailing metadata.
  void FailNext(int count, grpc::Status status,
                std::vector<std::pair<std::string, std::string>> trailers = {});
  // Attend calls from now on are never answered: they end when their caller gives up.
  void HoldCalls();
  // Attend answers with an output of so many zero floats instead of computing.
  void AnswerZeros(std::int64_t count);
  // Attend answers exactly this.
  void Answer(v1::AttendResponse response);

  int attempts() const;
  // How many connections the calls came from.
  int peers() const;
  // The requests that arrived, oldest first, without tensors' data.
  std::vector<v1::AttendRequest> requests() const;
  // A value of the last call's metadata; empty if it had none of this name.
  std::string metadata(const std::string& name) const;
  // Blocks until so many calls are held.
  void WaitUntilHeld(int count);

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const v1::AttendRequest* request,
                                   v1::AttendResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;

 private:
  void Record(const grpc::CallbackServerContext& context, const v1::AttendRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  int failures_left_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> trailers_ ABSL_GUARDED_BY(mutex_);
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  int held_ ABSL_GUARDED_BY(mutex_) = 0;
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

// attend.v1.AttentionService over gRPC's callback API.
#ifndef ATTEND_SERVER_RPC_ATTENTION_SERVICE_H_
#define ATTEND_SERVER_RPC_ATTENTION_SERVICE_H_

#include <cstdint>
#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "attend/v1/attention.grpc.pb.h"
#include "attend/v1/attention.pb.h"
#include "core/base/attention_problem.h"
#include "core/base/buffer_pool.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/send_watch.h"
#include "server/schedule/clock.h"
#include "server/schedule/scheduler.h"
#include "server/shared_memory/shared_memory_registry.h"

namespace attend {

// What the service needs. The pointers must not be null and must outlive the gRPC server.
struct AttentionServiceOptions {
  Scheduler* scheduler = nullptr;
  Metrics* metrics = nullptr;
  Clock* clock = nullptr;                         // the scheduler's
  BufferPool* buffers = nullptr;                  // for the tensors of requests and responses
  Logger logger;                                  // must not be null either
  SharedMemoryRegistry* shared_memory = nullptr;  // null: not offered
  // What a request may hold at most.
  AttentionLimits limits;
  // Of a request or response message, as the gRPC server was given it.
  std::int64_t max_message_bytes = std::int64_t{256} << 20;
  // Requests of one stream that wait for their answer, or whose answer waits to be sent. At
  // least 1.
  int max_stream_requests = 256;
  // For which gRPC may have an answer that its caller does not take; then the call is ended.
  // 0 = no limit.
  absl::Duration max_send_time = absl::Seconds(60);
  // One request in so many, at random, is logged at info; all are at debug. 0 = none.
  std::int64_t access_log_one_in = 0;
  // The answer to GetServerInfo; see server_info.h. Its `server` is Stats.server of every response.
  v1::ServerInfo info;
};

// The methods whose messages carry tensors take and give them as bytes: the generated classes copy
// every tensor.
using AttentionServiceBase = v1::AttentionService::WithRawCallbackMethod_Attend<
    v1::AttentionService::WithRawCallbackMethod_AttendStream<
        v1::AttentionService::WithCallbackMethod_GetServerInfo<
            v1::AttentionService::WithCallbackMethod_Estimate<v1::AttentionService::Service>>>>;

// Attend, AttendStream and GetServerInfo; Estimate answers UNIMPLEMENTED, and is counted.
// Handlers never block: a call is checked and submitted on gRPC's thread, and finished from the
// thread that computed it. Each call finishes once, whatever becomes of it, also while the
// scheduler shuts down. Thread-safety: safe from any thread.
class AttentionService final : public AttentionServiceBase {
 public:
  explicit AttentionService(AttentionServiceOptions options);

  // `request` is left empty: what it held is freed as early as can be.
  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(
      grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* Estimate(grpc::CallbackServerContext* context,
                                     const v1::AttendRequest* request, v1::Cost* response) override;

  // Lets no stream read on: each ends once what it has in flight is answered. To be called before
  // the gRPC server is shut down, which waits for every stream.
  void Drain() { open_streams_.Drain(); }

 private:
  // Of a call whose answer its caller did not take, and which is about to be ended for it.
  void NoteLateAnswer(const grpc::CallbackServerContext& context) const;

  // Counts a call of a method that is not offered, and returns its answer.
  grpc::Status NotOffered(Method method, const char* name) const;

  const AttentionServiceOptions options_;
  OpenStreams open_streams_;
  SendWatch send_watch_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_RPC_ATTENTION_SERVICE_H_

// A real gRPC server with the service under test, on a port of its own.
#ifndef ATTEND_TESTS_UNIT_SERVER_RPC_RPC_TEST_SERVER_H_
#define ATTEND_TESTS_UNIT_SERVER_RPC_RPC_TEST_SERVER_H_

#include <cstdint>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>
#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attend/v1/attention.grpc.pb.h"
#include "core/attention/attention.h"
#include "core/base/buffer_pool.h"
#include "core/base/tensor.h"
#include "core/executor/executor.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"
#include "server/rpc/attention_service.h"
#include "server/rpc/server_info.h"
#include "server/schedule/clock.h"
#include "server/schedule/scheduler.h"
#include "tests/unit/server/schedule/test_request.h"

namespace attend {

class RpcTest : public testing::Test {
 protected:
  RpcTest() : executor_({.threads = 1}), engine_(executor_, buffers_), metrics_(MetricsOptions()) {}

  ~RpcTest() override { Stop(); }

  // Called by each test before anything else.
  void Start(const SchedulerOptions& options = {},
             std::int64_t max_message_bytes = std::int64_t{16} << 20) {
    absl::StatusOr<std::unique_ptr<Scheduler>> scheduler =
        Scheduler::Create(options, engine_, executor_, clock_, metrics_);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler_ = *std::move(scheduler);
    service_ = std::make_unique<AttentionService>(
        AttentionServiceOptions{.scheduler = scheduler_.get(),
                                .metrics = &metrics_,
                                .clock = &clock_,
                                .buffers = &buffers_,
                                .logger = logger_,
                                .limits = {},
                                .max_message_bytes = max_message_bytes,
                                .max_stream_requests = max_stream_requests_,
                                .access_log_one_in = access_log_one_in_,
                                .info = MakeServerInfo({.server_name = "test-server"})});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    builder.experimental().SetInterceptorCreators(std::move(interceptors_));
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    channel_ =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
    stub_ = v1::AttentionService::NewStub(channel_);
  }

  // Returns when every call has been finished.
  void Stop() {
    if (service_ != nullptr) service_->Drain();
    if (scheduler_ != nullptr) scheduler_->Shutdown(clock_.Now());
    if (server_ != nullptr) server_->Shutdown();
    server_ = nullptr;
  }

  // Keeps the only worker busy, so that calls wait.
  void Hold(Plug& plug) {
    std::unique_ptr<AttentionTask> task = plug.request().Task(clock_);
    plug.request().taken = scheduler_->Submit(task).ok();
    ASSERT_TRUE(plug.request().taken);
    plug.WaitUntilComputing();
  }

  void WaitUntilPending(std::int64_t calls) const {
    while (scheduler_->num_pending() != calls) std::this_thread::yield();
  }

  // gRPC lets go of an answer a moment after it has sent it.
  void WaitUntilBuffersAreBack() const {
    while (buffers_.lent_bytes() != 0) std::this_thread::yield();
  }

  // Self-attention of `length` tokens with one head of 4 dimensions.
  static v1::AttendRequest Request(std::int64_t length = 2) {
    v1::AttendRequest request;
    const Tensor input = TestRequest::RampTensor(length);
    for (v1::Tensor* tensor :
         {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
      tensor->set_dtype(v1::DATA_TYPE_FLOAT32);
      tensor->mutable_shape()->Assign(input.shape.begin(), input.shape.end());
      tensor->set_data(input.data.data(), input.data.size());
    }
    return request;
  }

  grpc::Status Attend(const v1::AttendRequest& request, v1::AttendResponse* response = nullptr) {
    grpc::ClientContext context;
    v1::AttendResponse ignored;
    return stub_->Attend(&context, request, response != nullptr ? response : &ignored);
  }

  // The value of a series, such as `name{label="value"}`; "absent" if there is none.
  std::string Metric(const std::string& series) const {
    const std::string text = metrics_.Exposition();
    const std::size_t at = text.find("\n" + series + " ");
    if (at == std::string::npos) return "absent";
    const std::size_t begin = at + series.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  std::string Requests(const std::string& code, const std::string& method = "Attend") const {
    return Metric(
        absl::StrCat("attend_requests_total{code=\"", code, "\",method=\"", method, "\"}"));
  }

  int max_stream_requests_ = 256;  // to be changed before Start
  std::int64_t access_log_one_in_ = 0;
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors_;
  // Read it once the calls have been answered.
  std::ostringstream log_;
  const Logger logger_ = MakeStreamLogger(spdlog::level::debug, LogLines::kText, log_);
  MonotonicClock clock_;
  Executor executor_;
  BufferPool buffers_;
  AttentionEngine engine_;
  Metrics metrics_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<AttentionService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
};

}  // namespace attend

#endif  // ATTEND_TESTS_UNIT_SERVER_RPC_RPC_TEST_SERVER_H_

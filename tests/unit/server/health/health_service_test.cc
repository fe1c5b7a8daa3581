#include "server/health/health_service.h"

#include <chrono>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

namespace attend {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// A server and a client in this process.
class HealthServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = Health::NewStub(server_->InProcessChannel({}));
  }

  // Answers what waits for the server's end within the time that a test has.
  void TearDown() override {
    health_.Shutdown();
    server_->Shutdown();
  }

  static HealthCheckRequest For(const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    return request;
  }

  grpc::Status Check(const std::string& service, HealthCheckResponse* response) {
    grpc::ClientContext context;
    return stub_->Check(&context, For(service), response);
  }

  HealthService health_{{"attend.v1.AttentionService"}};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Health::Stub> stub_;
};

TEST_F(HealthServiceTest, ServesNothingUntilTold) {
  HealthCheckResponse response;
  for (const char* name : {"", "attend.v1.AttentionService"}) {
    ASSERT_TRUE(Check(name, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  }
  health_.SetServing(true);
  for (const char* name : {"", "attend.v1.AttentionService"}) {
    ASSERT_TRUE(Check(name, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  }
}

TEST_F(HealthServiceTest, DoesNotFindUnknownServices) {
  HealthCheckResponse response;
  EXPECT_EQ(Check("attend.v1.Other", &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HealthServiceTest, WatchTellsEachChangeOnce) {
  grpc::ClientContext context;
  const auto watch = stub_->Watch(&context, For(""));
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  health_.SetServing(false);  // no change, no message
  health_.SetServing(true);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  health_.SetServing(false);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthServiceTest, WatchOfAnUnknownServiceStaysOpen) {
  grpc::ClientContext context;
  const auto watch = stub_->Watch(&context, For("attend.v1.Other"));
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  health_.Shutdown();
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthServiceTest, RefusesNamesThatWouldFillMemory) {
  const std::string longest(1024, 'a');
  HealthCheckResponse response;
  EXPECT_EQ(Check(longest, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Check(longest + "a", &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext context;
  const auto watch = stub_->Watch(&context, For(longest + "a"));
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(HealthServiceTest, ShutdownEndsWatchesSoThatTheServerStopsAtOnce) {
  grpc::ClientContext context;
  const auto watch = stub_->Watch(&context, For(""));
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  health_.Shutdown();
  const auto start = std::chrono::steady_clock::now();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(60));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthServiceTest, NeverServesAgainAfterShutdown) {
  health_.SetServing(true);
  health_.Shutdown();
  health_.SetServing(true);
  HealthCheckResponse response;
  ASSERT_TRUE(Check("", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  grpc::ClientContext context;
  const auto watch = stub_->Watch(&context, For(""));
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthServiceTest, OutlivesWatchersThatLeave) {
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    const auto watch = stub_->Watch(&context, For(""));
    HealthCheckResponse response;
    ASSERT_TRUE(watch->Read(&response));
    context.TryCancel();
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
    health_.SetServing(i % 2 == 0);
  }
}

}  // namespace
}  // namespace attend

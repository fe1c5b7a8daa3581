#include "server/rpc/shared_memory_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "attend/v1/error.pb.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/server/schedule/fake_clock.h"

namespace attend {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

class SharedMemoryServiceTest : public ::testing::Test {
 protected:
  void Start(bool offered = true) {
    service_ = std::make_unique<SharedMemoryService>(SharedMemoryServiceOptions{
        .registry = offered ? &registry_ : nullptr, .metrics = &metrics_, .clock = &clock_});
    grpc::ServerBuilder builder;
    int port = 0;
    const std::string socket = absl::StrCat("unix:", folder_.PathOf("socket"));
    builder.AddListeningPort(socket, grpc::InsecureServerCredentials());
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    local_ = NewStub(socket);
    remote_ = NewStub(absl::StrCat("127.0.0.1:", port));
  }

  static std::unique_ptr<v1::SharedMemoryService::Stub> NewStub(const std::string& target) {
    return v1::SharedMemoryService::NewStub(
        grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
  }

  grpc::Status Register(v1::SharedMemoryService::Stub& stub, std::string& handle) {
    grpc::ClientContext context;
    return Register(stub, handle, context);
  }

  grpc::Status Register(v1::SharedMemoryService::Stub& stub, std::string& handle,
                        grpc::ClientContext& context) {
    v1::RegisterSharedMemoryRequest request;
    request.set_name(object_.name());
    request.set_size_bytes(100);
    v1::RegisterSharedMemoryResponse response;
    grpc::Status status = stub.Register(&context, request, &response);
    handle = response.handle();
    return status;
  }

  grpc::Status Unregister(const std::string& handle) {
    grpc::ClientContext context;
    v1::UnregisterSharedMemoryRequest request;
    request.set_handle(handle);
    v1::UnregisterSharedMemoryResponse response;
    return local_->Unregister(&context, request, &response);
  }

  grpc::Status GetStatus(const std::string& handle, v1::SharedMemoryStatus& response) {
    grpc::ClientContext context;
    v1::GetSharedMemoryStatusRequest request;
    request.set_handle(handle);
    return local_->GetStatus(&context, request, &response);
  }

  testing::TempFolder folder_;
  testing::SharedMemoryObject object_{100};
  FakeClock clock_;
  SharedMemoryRegistry registry_{{.max_regions = 1}, clock_};
  Metrics metrics_{MetricsOptions()};
  std::unique_ptr<SharedMemoryService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::SharedMemoryService::Stub> local_;
  std::unique_ptr<v1::SharedMemoryService::Stub> remote_;
};

TEST_F(SharedMemoryServiceTest, RegistersTellsAndForgets) {
  Start();
  std::string handle;
  ASSERT_TRUE(Register(*local_, handle).ok());
  v1::SharedMemoryStatus about;
  ASSERT_TRUE(GetStatus(handle, about).ok());
  EXPECT_EQ(about.size_bytes(), 100);
  EXPECT_EQ(about.read_bytes(), 0);
  EXPECT_TRUE(Unregister(handle).ok());
  EXPECT_EQ(GetStatus(handle, about).error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Unregister(handle).error_code(), StatusCode::NOT_FOUND);
  EXPECT_THAT(
      metrics_.Exposition(),
      HasSubstr("attend_requests_total{code=\"NOT_FOUND\",method=\"GetSharedMemoryStatus\"} 1"));
}

TEST_F(SharedMemoryServiceTest, SaysThatItIsOffWhereItIs) {  // B21
  Start(/*offered=*/false);
  std::string handle;
  const grpc::Status status = Register(*local_, handle);
  EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--shared-memory"));
  v1::SharedMemoryStatus about;
  EXPECT_EQ(GetStatus("", about).error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Unregister("").error_code(), StatusCode::UNIMPLEMENTED);
}

TEST_F(SharedMemoryServiceTest, IsForUnixSocketsAlone) {
  Start();
  std::string handle;
  const grpc::Status status = Register(*remote_, handle);
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("Unix socket"));
  EXPECT_EQ(registry_.num_regions(), 0);
}

TEST_F(SharedMemoryServiceTest, RefusesMoreThanItsBoundWithATimeToComeBack) {
  Start();
  const testing::SharedMemoryObject other(100);
  ASSERT_TRUE(registry_.Register(other.name(), 100).ok());
  std::string handle;
  grpc::ClientContext context;
  const grpc::Status status = Register(*local_, handle, context);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_details(), HasSubstr("google.rpc.RetryInfo"));
  // gRPC's own clients go by the metadata.
  v1::Error error;
  v1::RetryInfo retry;
  ASSERT_TRUE(error.ParseFromString(status.error_details()));
  ASSERT_EQ(error.details_size(), 1);
  ASSERT_TRUE(retry.ParseFromString(error.details(0).value()));
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto pushback = metadata.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, metadata.end());
  EXPECT_EQ(std::string(pushback->second.data(), pushback->second.size()),
            absl::StrCat(retry.retry_delay().nanos() / 1'000'000));
}

TEST_F(SharedMemoryServiceTest, TellsNoTimeToComeBackForOtherErrors) {
  Start();
  std::string handle;
  grpc::ClientContext context;
  EXPECT_EQ(Register(*remote_, handle, context).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 0u);
}

}  // namespace
}  // namespace attend

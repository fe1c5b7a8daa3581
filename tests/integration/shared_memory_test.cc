// Tensors in shared memory, with the real server.
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "attend/v1/shared_memory.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"
#include "tests/support/shared_memory_object.h"

namespace attend::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHuge = ~std::uint64_t{0};

class SharedMemoryTest : public ServerTest {
 protected:
  static constexpr std::size_t kRegionBytes = 1 << 20;

  void Start(const std::vector<std::string>& arguments = {"--shared-memory"}) {
    StartServer(arguments);
    channel_ = NewChannel(server_->unix_target());
    stub_ = v1::AttentionService::NewStub(channel_);
    regions_ = v1::SharedMemoryService::NewStub(channel_);
  }

  std::string RegisterOk(const SharedMemoryObject& object) {
    grpc::ClientContext context;
    v1::RegisterSharedMemoryRequest request;
    request.set_name(object.name());
    request.set_size_bytes(kRegionBytes);
    v1::RegisterSharedMemoryResponse response;
    const grpc::Status status = regions_->Register(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.handle();
  }

  // Puts the tensor's elements into the object, and the place into the tensor.
  static std::size_t Move(v1::Tensor& tensor, SharedMemoryObject& object, const std::string& handle,
                          std::size_t offset) {
    const std::string data = tensor.data();
    const auto bytes = std::as_bytes(std::span(data));
    object.Write(offset, {bytes.begin(), bytes.end()});
    SetPlace(*tensor.mutable_shared_memory(), handle, offset, data.size());
    return offset + data.size();
  }

  static void SetPlace(v1::SharedMemorySlice& slice, const std::string& handle,
                       std::uint64_t offset, std::uint64_t size) {
    slice.set_handle(handle);
    slice.set_offset(offset);
    slice.set_size_bytes(size);
  }

  // Makes the response whole again: brings the elements back into it.
  static void Fetch(v1::Tensor& tensor, const SharedMemoryObject& object) {
    const v1::SharedMemorySlice slice = tensor.shared_memory();
    const std::vector<std::byte> bytes = object.Read(slice.offset(), slice.size_bytes());
    tensor.set_data(bytes.data(), bytes.size());
  }

  grpc::Status StatusOf(const v1::AttendRequest& request) { return Attend(*stub_, request).status; }

  SharedMemoryObject object_{kRegionBytes};
  std::unique_ptr<v1::SharedMemoryService::Stub> regions_;
};

TEST_F(SharedMemoryTest, ComputesTheSameBitsWhereverTheTensorsLie) {
  Start();
  const std::string handle = RegisterOk(object_);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    v1::AttendRequest sent = RandomRequest({.query_len = 70, .kv_len = 90, .dtype = dtype});
    *sent.mutable_additive_mask() = RandomTensor({70, 90}, 5);
    sent.mutable_output()->set_lse(true);
    const CallResult expected = Attend(*stub_, sent);
    ASSERT_TRUE(expected.status.ok()) << expected.status.error_message();

    v1::AttendRequest shared = sent;
    std::size_t next = 3;  // at no alignment
    for (v1::Tensor* tensor : {shared.mutable_query(), shared.mutable_key(), shared.mutable_value(),
                               shared.mutable_additive_mask()}) {
      next = Move(*tensor, object_, handle, next);
    }
    const std::size_t output_bytes = expected.response.output().data().size();
    SetPlace(*shared.mutable_output()->mutable_output_target(), handle, next, output_bytes);
    SetPlace(*shared.mutable_output()->mutable_lse_target(), handle, next + output_bytes,
             expected.response.lse().data().size());
    CallResult result = Attend(*stub_, shared);
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_FALSE(result.response.output().has_data());
    Fetch(*result.response.mutable_output(), object_);
    Fetch(*result.response.mutable_lse(), object_);
    EXPECT_EQ(result.response.output().SerializeAsString(),
              expected.response.output().SerializeAsString());
    EXPECT_EQ(result.response.lse().SerializeAsString(),
              expected.response.lse().SerializeAsString());
  }
}

TEST_F(SharedMemoryTest, RefusesWhatDoesNotFitByField) {  // B16
  Start();
  const std::string handle = RegisterOk(object_);
  v1::AttendRequest request = RandomRequest();
  const std::uint64_t size = request.key().data().size();
  const auto expect = [&](const std::string& used, std::uint64_t offset, std::uint64_t bytes,
                          grpc::StatusCode code, const std::string& text) {
    SetPlace(*request.mutable_key()->mutable_shared_memory(), used, offset, bytes);
    const grpc::Status status = StatusOf(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  };
  using grpc::StatusCode;
  expect(handle, kRegionBytes - size + 1, size, StatusCode::INVALID_ARGUMENT,
         "key.shared_memory.size_bytes");
  expect(handle, kHuge - 63, 128, StatusCode::INVALID_ARGUMENT, "key.shared_memory.offset");
  expect(handle, 0, kHuge, StatusCode::INVALID_ARGUMENT, "key.shared_memory.size_bytes");
  expect(handle, 0, size - 1, StatusCode::INVALID_ARGUMENT, "key.shared_memory.size_bytes");
  expect("", 0, size, StatusCode::NOT_FOUND, "key.shared_memory.handle");
  expect(object_.name(), 0, size, StatusCode::NOT_FOUND, "key.shared_memory.handle");

  request = RandomRequest();
  v1::SharedMemorySlice& target = *request.mutable_output()->mutable_output_target();
  SetPlace(target, handle, 0, 1);
  EXPECT_THAT(StatusOf(request).error_message(), HasSubstr("output.output_target.size_bytes"));
  request = RandomRequest();
  SetPlace(*request.mutable_output()->mutable_lse_target(), handle, 0, 1);
  EXPECT_THAT(StatusOf(request).error_message(), HasSubstr("output.lse_target"));
  ExpectServes();
}

TEST_F(SharedMemoryTest, ForgetsWhatIsUnregistered) {
  Start();
  const std::string handle = RegisterOk(object_);
  v1::AttendRequest request = RandomRequest();
  Move(*request.mutable_key(), object_, handle, 0);
  EXPECT_TRUE(StatusOf(request).ok());
  EXPECT_EQ(server_->Metric("attend_shared_memory_regions"), 1);
  grpc::ClientContext context;
  v1::UnregisterSharedMemoryRequest unregister;
  unregister.set_handle(handle);
  v1::UnregisterSharedMemoryResponse response;
  ASSERT_TRUE(regions_->Unregister(&context, unregister, &response).ok());
  EXPECT_EQ(StatusOf(request).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(server_->Metric("attend_shared_memory_regions"), 0);
}

// Its lock goes as a process does that is killed.
TEST_F(SharedMemoryTest, ForgetsTheRegionOfAnOwnerThatHasEnded) {
  Start();
  SharedMemoryObject object(kRegionBytes);
  object.Lock();
  const SharedMemoryObject never_locked(kRegionBytes);
  RegisterOk(object);
  RegisterOk(never_locked);
  EXPECT_EQ(server_->Metric("attend_shared_memory_regions"), 2);
  object.Unlock();
  EXPECT_TRUE(WaitForMetric("attend_shared_memory_regions", 1));
  ExpectServes();
}

TEST_F(SharedMemoryTest, IsForUnixSocketsAlone) {
  Start();
  const std::string handle = RegisterOk(object_);
  v1::AttendRequest request = RandomRequest();
  Move(*request.mutable_key(), object_, handle, 0);
  const auto remote = v1::AttentionService::NewStub(NewChannel(server_->tcp_target()));
  const grpc::Status status = Attend(*remote, request).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("Unix socket"));
}

TEST_F(SharedMemoryTest, ATruncatedRegionSpoilsItsOwnersAnswersAlone) {  // B18
  Start();
  const std::string handle = RegisterOk(object_);
  v1::AttendRequest request = RandomRequest({.query_len = 100, .kv_len = 100});
  std::size_t next = 0;
  for (v1::Tensor* tensor : {request.mutable_query(), request.mutable_key()}) {
    next = Move(*tensor, object_, handle, next);
  }
  SetPlace(*request.mutable_output()->mutable_output_target(), handle, next, 2 * 4 * 100 * 6 * 4);
  object_.Resize(100);
  const grpc::Status status = StatusOf(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("query.shared_memory"));
  ExpectServes();

  std::atomic<bool> stop{false};
  std::thread vandal([&] {
    while (!stop) {
      object_.Resize(0);
      object_.Resize(kRegionBytes);
    }
  });
  for (int i = 0; i < 50; ++i) {
    const grpc::Status any = StatusOf(request);
    EXPECT_TRUE(any.ok() || any.error_code() == grpc::StatusCode::INVALID_ARGUMENT)
        << any.error_message();
  }
  stop = true;
  vandal.join();
  ExpectServes();
  EXPECT_TRUE(WaitForMetric("attend_in_flight_requests", 0));
}

// A mask that changes while it is read can change what its request sees, and nothing else: it is
// checked in the copy that is used.
TEST_F(SharedMemoryTest, ChecksTheBytesThatItUses) {
  Start();
  const std::string handle = RegisterOk(object_);
  v1::AttendRequest request = RandomRequest({.query_len = 32, .kv_len = 32});
  *request.mutable_boolean_mask() = BoolTensor({32, 32}, std::vector<int>(32 * 32, 1));
  Move(*request.mutable_boolean_mask(), object_, handle, 0);
  std::atomic<bool> stop{false};
  std::thread vandal([&] {
    while (!stop) {
      object_.Write(0, std::vector<std::byte>(32 * 32, std::byte{1}));
      object_.Write(0, std::vector<std::byte>(32 * 32, std::byte{0xff}));
    }
  });
  for (int i = 0; i < 60; ++i) {
    const CallResult result = Attend(*stub_, request);
    if (result.status.ok()) continue;
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(result.status.error_message(), HasSubstr("boolean_mask"));
  }
  stop = true;
  vandal.join();
  ExpectServes();
}

}  // namespace
}  // namespace attend::testing

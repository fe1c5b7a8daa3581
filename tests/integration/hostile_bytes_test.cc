// Bytes that are no honest request: compressed bombs and messages that do not parse.
#include <grpcpp/generic/generic_stub.h>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/calls.h"
#include "tests/support/requests.h"
#include "tests/support/server_fixture.h"

namespace attend::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class HostileBytesTest : public ServerTest {
 protected:
  void SetUp() override { StartServer(); }

  // Sends raw bytes to a method by its full name.
  grpc::Status Send(const std::string& method, const std::string& bytes) {
    grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel_);
    grpc::ClientContext context;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer message(&slice, 1);
    grpc::ByteBuffer response;
    grpc::Status status;
    absl::Notification ended;
    stub.UnaryCall(&context, method, {}, &message, &response, [&](grpc::Status result) {
      status = std::move(result);
      ended.Notify();
    });
    ended.WaitForNotification();
    return status;
  }
};

TEST_F(HostileBytesTest, CompressedBombIsRefusedAtNoCost) {
  ExpectServes();
  const std::int64_t before = server_->process().PeakResidentBytes();
  ASSERT_GT(before, 0);
  {
    v1::AttendRequest bomb;
    bomb.mutable_query()->set_dtype(v1::DATA_TYPE_FLOAT32);
    bomb.mutable_query()->set_data(std::string(200 * kMiB, '\0'));
    for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
      grpc::ClientContext context;
      context.set_compression_algorithm(algorithm);
      const CallResult result = Attend(*stub_, bomb, context);
      EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNIMPLEMENTED)
          << result.status.error_message();
    }
  }
  ExpectServes();
  EXPECT_LT(server_->process().PeakResidentBytes() - before, 16 * kMiB);
}

TEST_F(HostileBytesTest, BytesThatAreNoMessageAreAClientError) {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), std::string("\x52\xff\x01"),
        std::string("\x0a\x7f"), std::string(1000, '\x0b')}) {
    const grpc::Status status = Send("/attend.v1.AttentionService/Attend", bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("request: is not an AttendRequest"));
  }
  ExpectServes();
}

// A call that ends without a message.
class CallWithoutMessage final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  grpc::Status Wait() {
    ended_.WaitForNotification();
    return status_;
  }

 private:
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    ended_.Notify();
  }

  grpc::Status status_;
  absl::Notification ended_;
};

TEST_F(HostileBytesTest, ACallWithoutAMessageIsNoWrongRequest) {
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel_);
  grpc::ClientContext context;
  CallWithoutMessage call;
  stub.PrepareBidiStreamingCall(&context, "/attend.v1.AttentionService/Attend", {}, &call);
  call.StartWritesDone();
  call.StartCall();
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(server_->Metric("attend_requests_total{code=\"CANCELLED\",method=\"Attend\"}"), 1);
  ExpectServes();
}

TEST_F(HostileBytesTest, ATensorThatOccursTwiceIsNamed) {
  const v1::AttendRequest request = RandomRequest();
  v1::AttendRequest more;
  *more.mutable_value() = request.value();
  const grpc::Status status = Send("/attend.v1.AttentionService/Attend",
                                   request.SerializeAsString() + more.SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "value: occurs twice; expected one tensor");
}

// Fields that nobody knows take 3 bytes here and many times that once they are parsed.
TEST_F(HostileBytesTest, AMessageOfUnknownFieldsUnfoldsToNothing) {
  ExpectServes();
  const std::int64_t before = server_->process().PeakResidentBytes();
  std::string fields;
  while (static_cast<std::int64_t>(fields.size()) < 30 * kMiB) fields += "\xa0\x06\x01";
  const grpc::Status status = Send("/attend.v1.AttentionService/Attend", fields);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("outside the data of its tensors"));
  // The message itself, once or twice, with the shadows of a sanitizer; unfolded it would be ten
  // times that.
  EXPECT_LT(server_->process().PeakResidentBytes() - before, 96 * kMiB);
  ExpectServes();
}

TEST_F(HostileBytesTest, UnknownMethodsAndServicesAreUnimplemented) {
  for (const char* method : {"/attend.v1.AttentionService/Nothing", "/attend.v2.Nothing/Attend",
                             "/", "/attend.v1.AttentionService"}) {
    EXPECT_EQ(Send(method, "").error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
  ExpectServes();
}

TEST_F(HostileBytesTest, EmptyMessageNamesTheMissingQuery) {
  const grpc::Status status = Send("/attend.v1.AttentionService/Attend", "");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message().rfind("query", 0), 0u) << status.error_message();
}

// Valid messages with one byte changed: whatever they mean now, they get an answer, and the server
// lives.
TEST_F(HostileBytesTest, SurvivesEveryChangedByteOfAMessage) {
  v1::AttendRequest request = RandomRequest({.batch = 1,
                                             .query_heads = 1,
                                             .kv_heads = 1,
                                             .query_len = 1,
                                             .kv_len = 2,
                                             .head_dim = 1,
                                             .value_dim = 1});
  request.mutable_options()->set_causal(true);
  request.add_kv_lengths(2);
  *request.mutable_boolean_mask() = BoolTensor({2}, std::vector<int>{1, 0});
  request.mutable_output()->set_lse(true);
  const std::string bytes = request.SerializeAsString();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const int change : {0x01, 0x08, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ change);
      const grpc::Status status = Send("/attend.v1.AttentionService/Attend", changed);
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << i;
    }
  }
  ExpectServes();
}

}  // namespace
}  // namespace attend::testing

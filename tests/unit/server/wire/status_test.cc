#include "server/wire/status.h"

#include <gtest/gtest.h>
#include <string>

#include "attend/v1/error.pb.h"
#include "core/base/status.h"

namespace attend {
namespace {

v1::Error Details(const grpc::Status& status) {
  v1::Error error;
  EXPECT_TRUE(error.ParseFromString(status.error_details()));
  return error;
}

TEST(StatusTest, KeepsOkPlain) {
  const grpc::Status status = ToGrpcStatus(absl::OkStatus(), absl::Seconds(1));
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.error_details(), "");
}

class StatusCodeTest : public testing::TestWithParam<absl::StatusCode> {};

TEST_P(StatusCodeTest, KeepsCodeAndMessage) {
  const grpc::Status status =
      ToGrpcStatus(absl::Status(GetParam(), "what it was"), absl::Seconds(1));
  EXPECT_EQ(static_cast<int>(status.error_code()), static_cast<int>(GetParam()));
  EXPECT_EQ(status.error_message(), "what it was");
  const v1::Error error = Details(status);
  EXPECT_EQ(error.code(), static_cast<int>(GetParam()));
  EXPECT_EQ(error.message(), "what it was");
}

INSTANTIATE_TEST_SUITE_P(
    AllCodes, StatusCodeTest,
    testing::Values(absl::StatusCode::kCancelled, absl::StatusCode::kUnknown,
                    absl::StatusCode::kInvalidArgument, absl::StatusCode::kDeadlineExceeded,
                    absl::StatusCode::kNotFound, absl::StatusCode::kAlreadyExists,
                    absl::StatusCode::kPermissionDenied, absl::StatusCode::kResourceExhausted,
                    absl::StatusCode::kFailedPrecondition, absl::StatusCode::kAborted,
                    absl::StatusCode::kOutOfRange, absl::StatusCode::kUnimplemented,
                    absl::StatusCode::kInternal, absl::StatusCode::kUnavailable,
                    absl::StatusCode::kDataLoss, absl::StatusCode::kUnauthenticated),
    [](const auto& param_info) {
      return "Code" + std::to_string(static_cast<int>(param_info.param));
    });

TEST(StatusTest, PutsTheFieldIntoABadRequest) {
  const grpc::Status status =
      ToGrpcStatus(InvalidField("key.shape[2]", "is -1; expected a size"), absl::Seconds(1));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "key.shape[2]: is -1; expected a size");
  const v1::Error error = Details(status);
  ASSERT_EQ(error.details_size(), 1);
  EXPECT_EQ(error.details(0).type_url(), "type.googleapis.com/google.rpc.BadRequest");
  v1::BadRequest bad_request;
  ASSERT_TRUE(bad_request.ParseFromString(error.details(0).value()));
  ASSERT_EQ(bad_request.field_violations_size(), 1);
  EXPECT_EQ(bad_request.field_violations(0).field(), "key.shape[2]");
  EXPECT_EQ(bad_request.field_violations(0).description(), "is -1; expected a size");
}

TEST(StatusTest, NamesTheFieldOfWhatIsNotOffered) {
  const v1::Error error = Details(
      ToGrpcStatus(UnimplementedField("query.shared_memory", "is not offered"), absl::Seconds(1)));
  ASSERT_EQ(error.details_size(), 1);
  v1::BadRequest bad_request;
  ASSERT_TRUE(bad_request.ParseFromString(error.details(0).value()));
  EXPECT_EQ(bad_request.field_violations(0).field(), "query.shared_memory");
}

TEST(StatusTest, TellsWhenToRetryWhatIsExhausted) {
  const v1::Error error =
      Details(ToGrpcStatus(absl::ResourceExhaustedError("full"), absl::Milliseconds(1250)));
  ASSERT_EQ(error.details_size(), 1);
  EXPECT_EQ(error.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  v1::RetryInfo retry;
  ASSERT_TRUE(retry.ParseFromString(error.details(0).value()));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 250'000'000);
}

TEST(StatusTest, TellsNoRetryForAnythingElse) {
  EXPECT_EQ(
      Details(ToGrpcStatus(absl::UnavailableError("draining"), absl::Seconds(1))).details_size(),
      0);
}

TEST(StatusTest, StaysWithinWhatClientsTakeAsTrailers) {
  const std::string long_text(100'000, '\xff');
  const grpc::Status status = ToGrpcStatus(InvalidField(long_text, long_text), absl::Seconds(1));
  // As sent: the message percent-encoded at worst, the details in base64.
  EXPECT_LT(3 * status.error_message().size() + 2 * status.error_details().size(), 8192u);
}

TEST(StatusTest, MakesTextPrintable) {
  const grpc::Status status =
      ToGrpcStatus(absl::InvalidArgumentError(std::string("a\n\xff\0b", 5)), absl::Seconds(1));
  EXPECT_EQ(status.error_message(), "a???b");
}

}  // namespace
}  // namespace attend

#include "client/cpp/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "attend/v1/error.pb.h"
#include "client/cpp/errors.h"

namespace attend::client_internal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kLimit = 1000;

v1::Error ErrorWith(const std::string& type, const google::protobuf::Message& detail) {
  v1::Error error;
  error.add_details()->set_type_url("type.googleapis.com/google.rpc." + type);
  error.mutable_details(0)->set_value(detail.SerializeAsString());
  return error;
}

std::string BadRequestDetails() {
  v1::BadRequest bad_request;
  auto* first = bad_request.add_field_violations();
  first->set_field("key.shape[3]");
  first->set_description("is 3; expected 4");
  auto* second = bad_request.add_field_violations();
  second->set_field("options.scale");
  second->set_description("is NaN; expected a finite number");
  return ErrorWith("BadRequest", bad_request).SerializeAsString();
}

TEST(ToAbslStatusTest, KeepsOk) { EXPECT_TRUE(ToAbslStatus(grpc::Status::OK, kLimit).ok()); }

TEST(ToAbslStatusTest, KeepsEveryCodeAndTheMessage) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status(static_cast<grpc::StatusCode>(code), "why");
    const absl::Status converted = ToAbslStatus(status, kLimit);
    EXPECT_EQ(static_cast<int>(converted.code()), code);
    EXPECT_EQ(converted.message(), "why");
    EXPECT_TRUE(GetFieldViolations(converted).empty());
    EXPECT_FALSE(GetRetryDelay(converted).has_value());
  }
}

TEST(ToAbslStatusTest, DecodesFieldViolations) {
  const grpc::Status status(grpc::StatusCode::INVALID_ARGUMENT, "key.shape[3]: is 3; expected 4",
                            BadRequestDetails());
  const absl::Status converted = ToAbslStatus(status, kLimit);
  EXPECT_EQ(converted.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(converted.message(), "key.shape[3]: is 3; expected 4");
  const auto violations = GetFieldViolations(converted);
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "key.shape[3]");
  EXPECT_EQ(violations[0].description, "is 3; expected 4");
  EXPECT_EQ(violations[1].field, "options.scale");
  // As a status that core made here would say it.
  EXPECT_EQ(GetFieldViolation(converted)->field, "key.shape[3]");
}

TEST(ToAbslStatusTest, NamesTheOptionThatIsNotOffered) {
  const grpc::Status status(grpc::StatusCode::UNIMPLEMENTED, "", BadRequestDetails());
  const absl::Status converted = ToAbslStatus(status, kLimit);
  EXPECT_EQ(converted.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(converted.message()), StartsWith("key.shape[3]: "));
}

TEST(ToAbslStatusTest, DecodesTheRetryDelay) {
  v1::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(2);
  info.mutable_retry_delay()->set_nanos(250'000'000);
  const grpc::Status status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full",
                            ErrorWith("RetryInfo", info).SerializeAsString());
  const absl::Status converted = ToAbslStatus(status, kLimit);
  EXPECT_EQ(converted.message(), "the queue is full");
  EXPECT_EQ(GetRetryDelay(converted), std::chrono::milliseconds(2250));
}

TEST(ToAbslStatusTest, IgnoresDetailsThatAreNone) {
  const grpc::Status status(grpc::StatusCode::INVALID_ARGUMENT, "why", "\xff\xff garbage");
  const absl::Status converted = ToAbslStatus(status, kLimit);
  EXPECT_EQ(converted.message(), "why");
  EXPECT_TRUE(GetFieldViolations(converted).empty());
}

TEST(ToAbslStatusTest, SaysWhichSideToRaiseForALargeMessage) {
  const grpc::Status own(grpc::StatusCode::RESOURCE_EXHAUSTED,
                         "Received message larger than max (4000 vs. 1000)");
  EXPECT_THAT(std::string(ToAbslStatus(own, kLimit).message()),
              HasSubstr("this client accepts: raise its max_message_bytes (now 1000)"));
  const grpc::Status servers(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             "Received message larger than max (900 vs. 500)");
  EXPECT_THAT(std::string(ToAbslStatus(servers, kLimit).message()),
              HasSubstr("the server's limit: raise max_message_bytes there (now 500)"));
  const grpc::Status other(grpc::StatusCode::RESOURCE_EXHAUSTED, "message larger than max (oops");
  EXPECT_THAT(std::string(ToAbslStatus(other, kLimit).message()), EndsWith("oops"));
}

TEST(GetFieldViolationsTest, ReadsStatusesMadeByCore) {
  const auto violations = GetFieldViolations(InvalidField("query", "is missing"));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "query");
  EXPECT_EQ(violations[0].description, "is missing");
}

}  // namespace
}  // namespace attend::client_internal

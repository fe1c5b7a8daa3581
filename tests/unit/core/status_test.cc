#include "core/base/status.h"

#include <string>

#include "gtest/gtest.h"

namespace attend {
namespace {

TEST(StatusTest, InvalidFieldCarriesFieldAndDescription) {
  const absl::Status status = InvalidField("key.shape[2]", "is 7; expected 8");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "key.shape[2]: is 7; expected 8");
  const auto violation = GetFieldViolation(status);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field, "key.shape[2]");
  EXPECT_EQ(violation->description, "is 7; expected 8");
}

TEST(StatusTest, UnimplementedFieldCarriesTheOption) {
  const absl::Status status = UnimplementedField("options.softcap", "is not computed");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(GetFieldViolation(status)->field, "options.softcap");
}

TEST(StatusTest, FieldsAndDescriptionsMayHoldTheSeparator) {
  const auto violation = GetFieldViolation(InvalidField("a: b", "c: d"));
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field, "a: b");
  EXPECT_EQ(violation->description, "c: d");
}

TEST(StatusTest, EmptyDescriptionsAreKept) {
  EXPECT_EQ(GetFieldViolation(InvalidField("query", ""))->description, "");
}

TEST(StatusTest, OtherStatusesHaveNoField) {
  EXPECT_FALSE(GetFieldViolation(absl::OkStatus()).has_value());
  EXPECT_FALSE(GetFieldViolation(absl::InvalidArgumentError("key: is wrong")).has_value());
  EXPECT_FALSE(GetFieldViolation(absl::UnavailableError("draining")).has_value());
}

TEST(StatusTest, CopiesKeepTheField) {
  const absl::Status copy = InvalidField("query", "is missing");
  const absl::Status second = copy;
  EXPECT_EQ(GetFieldViolation(second)->field, "query");
}

}  // namespace
}  // namespace attend

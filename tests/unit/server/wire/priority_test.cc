#include "server/wire/priority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>

#include "core/base/status.h"

namespace attend {
namespace {

TEST(PriorityTest, IsNormalWhereNothingIsSaid) {
  EXPECT_EQ(*ToPriority(v1::PRIORITY_UNSPECIFIED, std::nullopt), Priority::kNormal);
}

TEST(PriorityTest, ReadsEachValueOfTheField) {
  EXPECT_EQ(*ToPriority(v1::PRIORITY_HIGH, std::nullopt), Priority::kHigh);
  EXPECT_EQ(*ToPriority(v1::PRIORITY_NORMAL, std::nullopt), Priority::kNormal);
  EXPECT_EQ(*ToPriority(v1::PRIORITY_LOW, std::nullopt), Priority::kLow);
}

TEST(PriorityTest, ReadsEachValueOfTheMetadata) {
  EXPECT_EQ(*ToPriority(v1::PRIORITY_UNSPECIFIED, "high"), Priority::kHigh);
  EXPECT_EQ(*ToPriority(v1::PRIORITY_UNSPECIFIED, "normal"), Priority::kNormal);
  EXPECT_EQ(*ToPriority(v1::PRIORITY_UNSPECIFIED, "low"), Priority::kLow);
}

TEST(PriorityTest, LetsTheFieldWinOverTheMetadata) {
  EXPECT_EQ(*ToPriority(v1::PRIORITY_LOW, "high"), Priority::kLow);
}

TEST(PriorityTest, RefusesUnknownValuesByName) {
  const absl::Status field = ToPriority(static_cast<v1::Priority>(17), "high").status();
  EXPECT_EQ(field.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(field)->field, "priority");

  const absl::Status metadata = ToPriority(v1::PRIORITY_UNSPECIFIED, "urgent").status();
  EXPECT_EQ(metadata.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(metadata)->field, "x-attend-priority");
  EXPECT_THAT(std::string(metadata.message()), testing::HasSubstr("\"urgent\""));
}

TEST(PriorityTest, QuotesLittleOfALongValue) {
  const std::string value(8000, 'x');
  EXPECT_LT(ToPriority(v1::PRIORITY_UNSPECIFIED, value).status().message().size(), 200u);
}

}  // namespace
}  // namespace attend

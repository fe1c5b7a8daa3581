#include "server/settings/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "absl/strings/str_cat.h"

namespace attend {
namespace {

using ::testing::HasSubstr;

TEST(ParseSizeTest, ReadsBytesAndBinaryUnits) {
  EXPECT_EQ(*ParseSize("0"), 0);
  EXPECT_EQ(*ParseSize("17"), 17);
  EXPECT_EQ(*ParseSize("17B"), 17);
  EXPECT_EQ(*ParseSize("3KiB"), 3072);
  EXPECT_EQ(*ParseSize("256MiB"), 268435456);
  EXPECT_EQ(*ParseSize("2GiB"), 2147483648);
}

TEST(ParseSizeTest, RefusesWhatIsNotASize) {
  for (const char* text : {"", "MiB", "-1", "1.5GiB", "1 TB", "1MB", "0x10",
                           "9223372036854775807KiB", "99999999999999999999"}) {
    const auto size = ParseSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_THAT(std::string(size.status().message()),
                HasSubstr(absl::StrCat("\"", text, "\" is not a size; write a whole number")));
  }
}

TEST(FormatSizeTest, UsesTheLargestUnitThatDivides) {
  EXPECT_EQ(FormatSize(0), "0");
  EXPECT_EQ(FormatSize(1023), "1023");
  EXPECT_EQ(FormatSize(1024), "1KiB");
  EXPECT_EQ(FormatSize(1536 << 10), "1536KiB");
  EXPECT_EQ(FormatSize(std::int64_t{2} << 30), "2GiB");
}

TEST(ParseDurationTest, ReadsNumbersWithUnits) {
  EXPECT_EQ(*ParseDuration("0"), absl::ZeroDuration());
  EXPECT_EQ(*ParseDuration("500us"), absl::Microseconds(500));
  EXPECT_EQ(*ParseDuration("2ms"), absl::Milliseconds(2));
  EXPECT_EQ(*ParseDuration("1.5s"), absl::Milliseconds(1500));
  EXPECT_EQ(*ParseDuration("1m30s"), absl::Seconds(90));
}

TEST(ParseDurationTest, RefusesWhatIsNotADuration) {
  for (const char* text : {"", "5", "5 parsecs", "-1s", "inf", "ms"}) {
    const auto duration = ParseDuration(text);
    ASSERT_FALSE(duration.ok()) << text;
    EXPECT_THAT(std::string(duration.status().message()), HasSubstr("is not a duration; write"));
  }
}

TEST(ParseIntegerTest, RefusesFractionsUnitsAndOverflow) {
  EXPECT_EQ(*ParseInteger("-5"), -5);
  for (const char* text : {"", "1.0", "3x", "9223372036854775808"}) {
    EXPECT_FALSE(ParseInteger(text).ok()) << text;
  }
}

TEST(ParseSwitchTest, KnowsTwoWords) {
  EXPECT_TRUE(*ParseSwitch("true"));
  EXPECT_FALSE(*ParseSwitch("false"));
  for (const char* text : {"", "yes", "1", "True"}) EXPECT_FALSE(ParseSwitch(text).ok()) << text;
}

}  // namespace
}  // namespace attend

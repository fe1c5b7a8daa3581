#include "server/wire/duration.h"

#include <cstdint>
#include <gtest/gtest.h>

#include "core/base/status.h"

namespace attend {
namespace {

google::protobuf::Duration Proto(std::int64_t seconds, std::int32_t nanos) {
  google::protobuf::Duration duration;
  duration.set_seconds(seconds);
  duration.set_nanos(nanos);
  return duration;
}

TEST(DurationTest, KeepsNanosecondsAndDropsWhatIsBelow) {
  const google::protobuf::Duration proto =
      ToProtoDuration(absl::Seconds(3) + absl::Nanoseconds(7) + absl::Nanoseconds(1) / 2);
  EXPECT_EQ(proto.seconds(), 3);
  EXPECT_EQ(proto.nanos(), 7);
}

TEST(DurationTest, GivesBothPartsTheSameSign) {
  const google::protobuf::Duration proto = ToProtoDuration(-absl::Milliseconds(1500));
  EXPECT_EQ(proto.seconds(), -1);
  EXPECT_EQ(proto.nanos(), -500'000'000);
}

TEST(DurationTest, ReadsTheWholePositiveRange) {
  EXPECT_EQ(*FromPositiveProtoDuration(Proto(0, 1), "timeout"), absl::Nanoseconds(1));
  EXPECT_EQ(*FromPositiveProtoDuration(Proto(2, 5), "timeout"),
            absl::Seconds(2) + absl::Nanoseconds(5));
  EXPECT_EQ(*FromPositiveProtoDuration(Proto(315'576'000'000, 999'999'999), "timeout"),
            absl::Seconds(315'576'000'000) + absl::Nanoseconds(999'999'999));
}

class BadDurationTest : public testing::TestWithParam<google::protobuf::Duration> {};

TEST_P(BadDurationTest, IsRefusedByName) {
  const absl::Status status = FromPositiveProtoDuration(GetParam(), "timeout").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(GetFieldViolation(status).has_value());
  EXPECT_EQ(GetFieldViolation(status)->field, "timeout");
}

INSTANTIATE_TEST_SUITE_P(All, BadDurationTest,
                         testing::Values(Proto(0, 0), Proto(-1, 0), Proto(0, -1), Proto(1, -1),
                                         Proto(-1, 1), Proto(0, 1'000'000'000),
                                         Proto(315'576'000'001, 0), Proto(INT64_MAX, 0),
                                         Proto(INT64_MIN, INT32_MIN)),
                         [](const auto& param_info) {
                           return "Case" + std::to_string(param_info.index);
                         });

}  // namespace
}  // namespace attend

#include "client/cpp/response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

namespace attend::client_internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Tensor Floats(std::int64_t count) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_FLOAT32);
  tensor.add_shape(count);
  tensor.set_data(std::string(static_cast<std::size_t>(count) * 4, '\0'));
  return tensor;
}

TEST(ToResultTest, ReadsTensorsAndStats) {
  v1::AttendResponse response;
  *response.mutable_output() = Floats(2);
  *response.mutable_weights() = Floats(3);
  response.mutable_stats()->mutable_queue()->set_seconds(1);
  response.mutable_stats()->mutable_queue()->set_nanos(5);
  response.mutable_stats()->set_batch_size(7);
  response.mutable_stats()->set_server("a");
  const absl::StatusOr<AttendResult> result = ToResult(response);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->output.ToFloats(), ElementsAre(0, 0));
  EXPECT_FALSE(result->lse.has_value());
  EXPECT_FALSE(result->scores.has_value());
  ASSERT_TRUE(result->weights.has_value());
  EXPECT_THAT(result->weights->shape, ElementsAre(3));
  EXPECT_EQ(result->stats.queue.count(), 1'000'000'005);
  EXPECT_EQ(result->stats.batch_size, 7);
  EXPECT_EQ(result->stats.server, "a");
}

TEST(ToResultTest, RefusesAnAnswerThatMakesNoSense) {
  v1::AttendResponse no_output;
  EXPECT_EQ(ToResult(no_output).status().code(), absl::StatusCode::kInternal);
  v1::AttendResponse short_output;
  *short_output.mutable_output() = Floats(2);
  short_output.mutable_output()->set_shape(0, 3);
  EXPECT_THAT(std::string(ToResult(short_output).status().message()), HasSubstr("output.data"));
  v1::AttendResponse bad_lse;
  *bad_lse.mutable_output() = Floats(2);
  *bad_lse.mutable_lse() = Floats(2);
  bad_lse.mutable_lse()->set_shape(0, -2);
  EXPECT_THAT(std::string(ToResult(bad_lse).status().message()), HasSubstr("lse.shape[0]"));
}

TEST(ToServerInfoTest, ReadsEverythingAndSkipsUnknownDTypes) {
  v1::ServerInfo message;
  message.set_cpu_target("AVX2");
  message.add_dtypes(v1::DATA_TYPE_FLOAT16);
  message.add_dtypes(static_cast<v1::DataType>(99));
  message.add_options("causal");
  message.mutable_limits()->set_max_length(12);
  message.mutable_limits()->set_max_queued_bytes(34);
  const ServerInfo info = ToServerInfo(message);
  EXPECT_EQ(info.cpu_target, "AVX2");
  EXPECT_THAT(info.dtypes, ElementsAre(DType::kFloat16));
  EXPECT_THAT(info.options, ElementsAre("causal"));
  EXPECT_EQ(info.limits.max_length, 12);
  EXPECT_EQ(info.limits.max_queued_bytes, 34);
}

}  // namespace
}  // namespace attend::client_internal

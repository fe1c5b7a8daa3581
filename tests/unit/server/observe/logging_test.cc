#include "server/observe/logging.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <google/protobuf/wrappers.pb.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "server/observe/line_limit.h"

namespace attend {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LoggingTest : public ::testing::Test {
 protected:
  Logger Make(LogLines lines, spdlog::level::level_enum level = spdlog::level::info) {
    return MakeStreamLogger(level, lines, out_);
  }

  std::ostringstream out_;
};

TEST_F(LoggingTest, WritesTextLinesWithUtcTimeAndLevel) {
  Make(LogLines::kText)->info("serving on {}", "127.0.0.1:1");
  EXPECT_THAT(out_.str(),
              MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9]+Z info    serving on 127\\.0\\.0\\.1:1\n"));
}

TEST_F(LoggingTest, WritesOneJsonObjectALine) {
  const Logger logger = Make(LogLines::kJson);
  logger->warn("one");
  logger->error("two");
  std::istringstream lines(out_.str());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const nlohmann::json first = nlohmann::json::parse(line);
  EXPECT_EQ(first["level"], "warning");
  EXPECT_EQ(first["message"], "one");
  EXPECT_THAT(first["time"].get<std::string>(), MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9]+Z"));
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(nlohmann::json::parse(line)["level"], "error");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(LoggingTest, EscapesWhateverAMessageHolds) {
  const std::string message = "quote \" backslash \\ newline \n tab \t percent %v brace {} \x01 ü";
  Make(LogLines::kJson)->info("{}", message);
  const std::string line = out_.str();
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(nlohmann::json::parse(line)["message"], message);
}

TEST_F(LoggingTest, ReplacesBytesThatAreNotUtf8) {
  Make(LogLines::kJson)->info("{}", "a\xff\xfe");
  EXPECT_EQ(nlohmann::json::parse(out_.str())["message"], "a\uFFFD\uFFFD");
}

TEST_F(LoggingTest, LeavesLessSevereLinesOut) {
  const Logger logger = Make(LogLines::kText, spdlog::level::warn);
  logger->info("no");
  EXPECT_EQ(out_.str(), "");
  logger->warn("yes");
  EXPECT_NE(out_.str(), "");
}

TEST(LineLimitTest, LetsSoManyThroughInEachWindowAndCountsTheRest) {
  LineLimit limit(2, absl::Seconds(10));
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(limit.Take(start), 0);
  EXPECT_EQ(limit.Take(start + absl::Seconds(1)), 0);
  EXPECT_EQ(limit.Take(start + absl::Seconds(2)), std::nullopt);
  EXPECT_EQ(limit.Take(start + absl::Seconds(9)), std::nullopt);
  EXPECT_EQ(limit.Take(start + absl::Seconds(10)), 2);
  EXPECT_EQ(limit.Take(start + absl::Seconds(11)), 0);
  EXPECT_EQ(limit.Take(start + absl::Seconds(12)), std::nullopt);
}

TEST_F(LoggingTest, TakesWhatGrpcLogs) {
  grpc_init();
  // Outlives the test, as the route does.
  auto& out = *new std::ostringstream;
  RouteLibraryLogs(MakeStreamLogger(spdlog::level::info, LogLines::kJson, out));
  gpr_log(GPR_ERROR, "something %d", 7);
  const nlohmann::json line = nlohmann::json::parse(out.str());
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["message"], "grpc: something 7");
  grpc_shutdown();
}

// A caller can have protobuf write a line for each string that it sends.
TEST_F(LoggingTest, TakesWhatProtobufLogsAndNotAllOfIt) {
  auto& out = *new std::ostringstream;
  RouteLibraryLogs(MakeStreamLogger(spdlog::level::info, LogLines::kText, out));
  ::testing::internal::CaptureStderr();
  google::protobuf::StringValue value;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(value.ParseFromString("\x0a\x01\xff"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  const std::string log = out.str();
  EXPECT_THAT(log, HasSubstr("error   protobuf: "));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 20);
}

}  // namespace
}  // namespace attend

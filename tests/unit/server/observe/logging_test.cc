#include "server/observe/logging.h"

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <sstream>
#include <string>

namespace attend {
namespace {

using ::testing::MatchesRegex;

class LoggingTest : public ::testing::Test {
 protected:
  Logger Make(LogLevel level, LogFormat format) {
    return MakeLogger(level, format, std::make_shared<spdlog::sinks::ostream_sink_mt>(out_));
  }

  std::ostringstream out_;
};

TEST_F(LoggingTest, WritesTextLinesWithUtcTimeAndLevel) {
  Make(LogLevel::kInfo, LogFormat::kText)->info("serving on {}", "127.0.0.1:1");
  EXPECT_THAT(out_.str(),
              MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9]+Z info    serving on 127\\.0\\.0\\.1:1\n"));
}

TEST_F(LoggingTest, WritesOneJsonObjectALine) {
  const Logger logger = Make(LogLevel::kInfo, LogFormat::kJson);
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
  Make(LogLevel::kInfo, LogFormat::kJson)->info("{}", message);
  const std::string line = out_.str();
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(nlohmann::json::parse(line)["message"], message);
}

TEST_F(LoggingTest, ReplacesBytesThatAreNotUtf8) {
  Make(LogLevel::kInfo, LogFormat::kJson)->info("{}", "a\xff\xfe");
  EXPECT_EQ(nlohmann::json::parse(out_.str())["message"], "a\uFFFD\uFFFD");
}

TEST_F(LoggingTest, LeavesLessSevereLinesOut) {
  const Logger logger = Make(LogLevel::kWarning, LogFormat::kText);
  logger->info("no");
  EXPECT_EQ(out_.str(), "");
  logger->warn("yes");
  EXPECT_NE(out_.str(), "");
}

TEST_F(LoggingTest, TakesWhatGrpcLogs) {
  grpc_init();
  // Outlives the test, as the route does.
  auto& out = *new std::ostringstream;
  RouteGrpcLogs(MakeLogger(LogLevel::kInfo, LogFormat::kJson,
                           std::make_shared<spdlog::sinks::ostream_sink_mt>(out)));
  gpr_log(GPR_ERROR, "something %d", 7);
  const nlohmann::json line = nlohmann::json::parse(out.str());
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["message"], "grpc: something 7");
  grpc_shutdown();
}

}  // namespace
}  // namespace attend

#include "server/observe/admin_server.h"

#include <array>
#include <atomic>
#include <civetweb.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace attend {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int code = 0;
  std::string type;
  std::string body;
};

class AdminServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = AdminServer::Start("127.0.0.1:0", Pages());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  AdminPages Pages() {
    return {.metrics = [] { return std::string("attend_x 1\n"); },
            .not_ready = [this] { return ready_ ? std::string() : std::string("starting"); },
            .status = [] { return std::string("{}"); }};
  }

  Answer Ask(const std::string& method, const std::string& path) const {
    std::array<char, 256> error{};
    mg_connection* const connection =
        mg_download("127.0.0.1", server_->port(), 0, error.data(), error.size(),
                    "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method.c_str(), path.c_str());
    EXPECT_NE(connection, nullptr) << error.data();
    if (connection == nullptr) return {};
    Answer answer;
    answer.code = mg_get_response_info(connection)->status_code;
    const char* const type = mg_get_header(connection, "Content-Type");
    answer.type = type == nullptr ? "" : type;
    std::array<char, 1024> buffer{};
    for (int n = 0;
         method != "HEAD" && (n = mg_read(connection, buffer.data(), buffer.size())) > 0;) {
      answer.body.append(buffer.data(), static_cast<std::size_t>(n));
    }
    mg_close_connection(connection);
    return answer;
  }

  std::atomic<bool> ready_{false};
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, ServesMetricsInPrometheusFormat) {
  const Answer answer = Ask("GET", "/metrics");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.type, HasSubstr("version=0.0.4"));
  EXPECT_EQ(answer.body, "attend_x 1\n");
}

TEST_F(AdminServerTest, IsLiveWhetherReadyOrNot) {
  EXPECT_EQ(Ask("GET", "/livez").code, 200);
  ready_ = true;
  EXPECT_EQ(Ask("GET", "/livez").code, 200);
}

TEST_F(AdminServerTest, SaysWhyItIsNotReady) {
  const Answer answer = Ask("GET", "/readyz");
  EXPECT_EQ(answer.code, 503);
  EXPECT_EQ(answer.body, "starting\n");
  ready_ = true;
  EXPECT_EQ(Ask("GET", "/readyz").code, 200);
  ready_ = false;
  EXPECT_EQ(Ask("GET", "/readyz").code, 503);
}

TEST_F(AdminServerTest, ServesStatusAsJson) {
  const Answer answer = Ask("GET", "/statusz");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.type, "application/json");
  EXPECT_EQ(answer.body, "{}");
}

TEST_F(AdminServerTest, AnswersHeadWithoutABody) { EXPECT_EQ(Ask("HEAD", "/livez").code, 200); }

TEST_F(AdminServerTest, ServesNoOtherPathAndNoFiles) {
  for (const char* path : {"/", "/metrics/x", "/etc/passwd", "/../etc/passwd", "/livez/"}) {
    EXPECT_EQ(Ask("GET", path).code, 404) << path;
  }
}

TEST_F(AdminServerTest, RefusesOtherMethods) {
  for (const char* method : {"POST", "PUT", "DELETE"}) {
    EXPECT_EQ(Ask(method, "/metrics").code, 405) << method;
  }
}

TEST_F(AdminServerTest, RefusesATakenPortByName) {
  const std::string address = absl::StrCat("127.0.0.1:", server_->port());
  const auto second = AdminServer::Start(address, Pages());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("cannot listen on " + address));
}

TEST_F(AdminServerTest, ListensOnNames) {
  const auto server = AdminServer::Start("localhost:0", Pages());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->port(), 0);
}

TEST_F(AdminServerTest, ListensOnIpv6OrSaysThatItCannot) {
  const auto server = AdminServer::Start("[::1]:0", Pages());
  if (server.ok()) {
    EXPECT_GT((*server)->port(), 0);
  } else {
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("cannot listen on [::1]:0"));
  }
}

TEST_F(AdminServerTest, StopsAtOnce) {
  Ask("GET", "/livez");
  const absl::Time start = absl::Now();
  server_.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
}

}  // namespace
}  // namespace attend

#include "server/observe/admin_server.h"

#include <array>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace attend {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int code = 0;
  std::string head;
  std::string body;
};

// Everything that 127.0.0.1:`port` answers to `request`.
std::string Exchange(int port, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  std::array<char, 1024> buffer{};
  for (ssize_t n = 0; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;) {
    answer.append(buffer.data(), static_cast<std::size_t>(n));
  }
  close(fd);
  return answer;
}

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
    const std::string text = Exchange(
        server_->port(), absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    const auto head_end = text.find("\r\n\r\n");
    Answer answer;
    EXPECT_NE(head_end, std::string::npos) << text;
    if (head_end == std::string::npos) return answer;
    EXPECT_TRUE(absl::SimpleAtoi(text.substr(sizeof("HTTP/1.1"), 3), &answer.code)) << text;
    answer.head = text.substr(0, head_end);
    answer.body = text.substr(head_end + 4);
    return answer;
  }

  std::atomic<bool> ready_{false};
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, ServesMetricsInPrometheusFormat) {
  const Answer answer = Ask("GET", "/metrics");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.head, HasSubstr("version=0.0.4"));
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
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json"));
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

#include "server/settings/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

namespace attend {
namespace {

using ::testing::HasSubstr;

TEST(ParseAddressTest, ReadsHostAndPort) {
  const Address address = *ParseAddress("127.0.0.1:0");
  EXPECT_EQ(address.host, "127.0.0.1");
  EXPECT_EQ(address.port, 0);
  EXPECT_FALSE(address.is_unix());
}

TEST(ParseAddressTest, ReadsIpv6InBrackets) {
  const Address address = *ParseAddress("[::1]:50051");
  EXPECT_EQ(address.host, "::1");
  EXPECT_EQ(address.port, 50051);
}

TEST(ParseAddressTest, ReadsUnixPath) {
  const Address address = *ParseAddress("unix:/run/attend.sock");
  EXPECT_TRUE(address.is_unix());
  EXPECT_EQ(address.path, "/run/attend.sock");
}

TEST(ParseAddressTest, FormatsWhatItParsed) {
  for (const char* text : {"127.0.0.1:1", "[::1]:50051", "localhost:0", "unix:/a/b"}) {
    EXPECT_EQ(FormatAddress(*ParseAddress(text)), text);
  }
}

struct BadCase {
  std::string text;
  std::string why;
};
class ParseAddressRefusesTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(ParseAddressRefusesTest, SaysWhy) {
  const auto address = ParseAddress(GetParam().text);
  ASSERT_FALSE(address.ok());
  EXPECT_THAT(std::string(address.status().message()), HasSubstr(GetParam().why));
  EXPECT_THAT(std::string(address.status().message()), HasSubstr("write host:port"));
}

INSTANTIATE_TEST_SUITE_P(
    All, ParseAddressRefusesTest,
    ::testing::Values(BadCase{"", "has no port"}, BadCase{"localhost", "has no port"},
                      BadCase{":50051", "has no host"},
                      BadCase{"localhost:", "has no port between 0 and 65535"},
                      BadCase{"localhost:65536", "has no port between 0 and 65535"},
                      BadCase{"localhost:-1", "has no port between 0 and 65535"},
                      BadCase{"::1:50051", "has a host that is not one"},
                      BadCase{"[localhost]:1", "has no IPv6 address between its brackets"},
                      BadCase{"unix:", "has no absolute path"},
                      BadCase{"unix:relative.sock", "has no absolute path"},
                      BadCase{"unix:/" + std::string(120, 'x'), "longer than 107 bytes"}));

TEST(AddressTest, KnowsWhatOtherHostsCannotReach) {
  for (const char* text : {"127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "localhost:1", "unix:/x"}) {
    EXPECT_TRUE(ParseAddress(text)->is_local()) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1", "example.org:1",
                           "127.0.0.1.example.org:1"}) {
    EXPECT_FALSE(ParseAddress(text)->is_local()) << text;
  }
}

}  // namespace
}  // namespace attend

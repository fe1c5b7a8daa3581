#include "server/rpc/trace_context.h"

#include <gtest/gtest.h>
#include <string>

namespace attend {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kParent[] = "00f067aa0ba902b7";

std::string Value(const std::string& version, const std::string& trace, const std::string& parent,
                  const std::string& flags) {
  return version + "-" + trace + "-" + parent + "-" + flags;
}

TEST(TraceContext, IsReadFromAWellFormedValue) {
  const auto context = ParseTraceParent(Value("00", kTrace, kParent, "01"));
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->parent_id, kParent);
  EXPECT_EQ(context->flags, "01");
}

TEST(TraceContext, OfALaterVersionIsReadAsFarAsItIsKnown) {
  EXPECT_TRUE(ParseTraceParent(Value("01", kTrace, kParent, "01")).has_value());
  EXPECT_TRUE(ParseTraceParent(Value("cc", kTrace, kParent, "01") + "-what-comes").has_value());
  EXPECT_FALSE(ParseTraceParent(Value("cc", kTrace, kParent, "01") + ".what").has_value());
}

TEST(TraceContext, IsIgnoredWhereItIsMalformed) {
  const std::string good = Value("00", kTrace, kParent, "01");
  for (const std::string& value :
       {std::string(), good.substr(1), good + "-", good + "0", Value("ff", kTrace, kParent, "01"),
        Value("00", std::string(32, '0'), kParent, "01"),
        Value("00", kTrace, std::string(16, '0'), "01"), Value("0g", kTrace, kParent, "01"),
        Value("00", "4BF92F3577B34DA6A3CE929D0E0E4736", kParent, "01"),
        Value("00", kTrace, kParent, "0x"), std::string(55, 'a'), std::string(55, '-')}) {
    EXPECT_FALSE(ParseTraceParent(value).has_value()) << value;
  }
}

TEST(TraceContext, IsAnsweredWithTheSameTraceAndAnotherSpan) {
  const auto context = ParseTraceParent(Value("00", kTrace, kParent, "01"));
  ASSERT_TRUE(context.has_value());
  const std::string first = AnswerTraceParent(*context);
  const std::string second = AnswerTraceParent(*context);
  const auto answered = ParseTraceParent(first);
  ASSERT_TRUE(answered.has_value()) << first;
  EXPECT_EQ(answered->trace_id, kTrace);
  EXPECT_EQ(answered->flags, "01");
  EXPECT_NE(answered->parent_id, kParent);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace attend

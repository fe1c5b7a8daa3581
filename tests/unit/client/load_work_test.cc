// Kinds of work as the command line spells them, and the requests drawn from them.
#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "client/load/request_mix.h"
#include "client/load/work.h"

namespace attend::load {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

Work Parsed(const std::string& text) {
  const absl::StatusOr<Work> work = ParseWork(text);
  EXPECT_TRUE(work.ok()) << work.status();
  return work.value_or(Work());
}

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Work> work = ParseWork(text);
  EXPECT_FALSE(work.ok()) << text;
  return std::string(work.status().message());
}

RequestMix Mix(const std::vector<std::string>& texts, std::uint64_t seed = 1) {
  std::vector<Work> works;
  for (const std::string& text : texts) works.push_back(Parsed(text));
  absl::StatusOr<RequestMix> mix = RequestMix::Create(works, 64 * kMiB, seed);
  EXPECT_TRUE(mix.ok()) << mix.status();
  return *std::move(mix);
}

TEST(WorkTest, DefaultsAndPartners) {
  const Work plain = Parsed("");
  EXPECT_EQ(plain.length.Kind::kFixed, plain.length.kind);
  EXPECT_EQ(plain.length.low, 512);
  EXPECT_EQ(plain.kv_heads, 12);
  const Work given = Parsed("query_heads=8,head_dim=128");
  EXPECT_EQ(given.kv_heads, 8);
  EXPECT_EQ(given.value_dim, 128);
}

TEST(WorkTest, EveryKey) {
  const Work work = Parsed(
      "share=2.5,phase=decode,length=uniform:7:90,query_len=3,batch=2,query_heads=8,kv_heads=2,"
      "head_dim=32,value_dim=16,dtype=bfloat16,output_dtype=float32,causal,mask=boolean,"
      "priority=high,deadline=50ms");
  EXPECT_EQ(work.share, 2.5);
  EXPECT_EQ(work.phase, Phase::kDecode);
  EXPECT_EQ(work.length.low, 7);
  EXPECT_EQ(work.length.high, 90);
  EXPECT_EQ(work.query_len, 3);
  EXPECT_EQ(work.batch, 2);
  EXPECT_EQ(work.query_heads, 8);
  EXPECT_EQ(work.kv_heads, 2);
  EXPECT_EQ(work.head_dim, 32);
  EXPECT_EQ(work.value_dim, 16);
  EXPECT_EQ(work.dtype, DType::kBFloat16);
  EXPECT_EQ(work.output_dtype, DType::kFloat32);
  EXPECT_TRUE(work.causal);
  EXPECT_EQ(work.mask, MaskKind::kBoolean);
  EXPECT_EQ(work.priority, CallPriority::kHigh);
  EXPECT_EQ(work.deadline, std::chrono::milliseconds(50));
}

TEST(WorkTest, ErrorsNameTheKeyAndWhatWasExpected) {
  EXPECT_THAT(ErrorOf("lenght=5"), HasSubstr("no such key: lenght"));
  EXPECT_THAT(ErrorOf("length=0"), HasSubstr("length=0: expected a whole number of 1 to"));
  EXPECT_THAT(ErrorOf("causal,length"), HasSubstr("length: expected a whole number of 1 to"));
  EXPECT_THAT(ErrorOf("length=uniform:9"), HasSubstr("uniform:LOW:HIGH"));
  EXPECT_THAT(ErrorOf("length=uniform:9:8"), HasSubstr("LOW up to HIGH"));
  EXPECT_THAT(ErrorOf("length=lognormal:8:x"), HasSubstr("SIGMA"));
  EXPECT_THAT(ErrorOf("share=0"), HasSubstr("share=0: expected a number above 0"));
  EXPECT_THAT(ErrorOf("dtype=int8"), HasSubstr("one of float32, bfloat16, float16"));
  EXPECT_THAT(ErrorOf("causal=maybe"), HasSubstr("one of true, false"));
  EXPECT_THAT(ErrorOf("deadline=0"), HasSubstr("deadline=0: expected more than 0"));
  EXPECT_THAT(ErrorOf("deadline=soon"), HasSubstr("expected a time"));
  EXPECT_THAT(ErrorOf("query_heads=4,kv_heads=3"), HasSubstr("a multiple of kv_heads, 3"));
  EXPECT_THAT(ErrorOf("query_len=4"), HasSubstr("phase=decode only"));
  EXPECT_THAT(ErrorOf("phase=decode,query_len=4,length=uniform:2:9"),
              HasSubstr("at most the shortest length, 2"));
}

TEST(DurationTest, NumbersAreSeconds) {
  EXPECT_EQ(*ParseDuration("2"), std::chrono::seconds(2));
  EXPECT_EQ(*ParseDuration("1.5s"), std::chrono::milliseconds(1500));
  EXPECT_EQ(*ParseDuration("250us"), std::chrono::microseconds(250));
  for (const char* bad : {"-1", "inf", "nan", "2 parsecs", "", "9000h"}) {
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  }
}

TEST(LengthsTest, UniformCoversItsRangeEvenly) {
  const Lengths lengths = *ParseLengths("uniform:3:6");
  std::mt19937_64 random(1);
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < 40'000; ++i) ++counts[lengths.Draw(random)];
  ASSERT_EQ(counts.size(), 4u);
  for (const auto& [length, count] : counts) {
    EXPECT_GE(length, 3);
    EXPECT_LE(length, 6);
    EXPECT_NEAR(count, 10'000, 500);
  }
}

TEST(LengthsTest, LogNormalHasItsMedianAndSigmaAndIsCut) {
  const Lengths lengths = *ParseLengths("lognormal:100:0.5:180");
  std::mt19937_64 random(1);
  constexpr int kCount = 40'000;
  int below_median = 0;
  int below_one_sigma = 0;
  for (int i = 0; i < kCount; ++i) {
    const std::int64_t length = lengths.Draw(random);
    ASSERT_GE(length, 1);
    ASSERT_LE(length, 180);
    below_median += length < 100;
    below_one_sigma += static_cast<double>(length) < 100 * std::exp(0.5);
  }
  EXPECT_NEAR(below_median, 0.5 * kCount, 0.02 * kCount);
  EXPECT_NEAR(below_one_sigma, 0.8413 * kCount, 0.02 * kCount);
  EXPECT_EQ(ParseLengths("lognormal:100:1")->high, 800);
}

TEST(RequestMixTest, DrawsKindsByTheirSharesAndTheSameForTheSameSeed) {
  RequestMix mix = Mix({"share=3,length=uniform:1:99,query_heads=1", "length=7,query_heads=1"});
  RequestMix same = Mix({"share=3,length=uniform:1:99,query_heads=1", "length=7,query_heads=1"});
  int first = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Draw draw = mix.Next();
    const Draw again = same.Next();
    EXPECT_EQ(draw.work, again.work);
    EXPECT_EQ(draw.kv_len, again.kv_len);
    EXPECT_EQ(draw.variant, again.variant);
    first += draw.work == 0;
  }
  EXPECT_NEAR(first, 7500, 300);
}

TEST(RequestMixTest, ArgumentsAreAProblemOfTheRightShape) {
  RequestMix mix =
      Mix({"phase=decode,length=40,query_len=2,batch=3,query_heads=4,kv_heads=2,head_dim=8,"
           "value_dim=6,dtype=float16,output_dtype=float32,causal,mask=additive"});
  const Draw draw = mix.Next();
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(mix.Args(draw));
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->output_shape(), Dims({3, 4, 2, 6}));
  EXPECT_EQ(problem->kv_len(), 40);
  EXPECT_EQ(problem->dtype(), DType::kFloat16);
  EXPECT_EQ(problem->output_dtype(), DType::kFloat32);
  EXPECT_TRUE(problem->causal());
  EXPECT_EQ(problem->items()[0].offset, 38);  // the queries are the last tokens
  EXPECT_EQ(mix.Tokens(draw), 6);
}

TEST(RequestMixTest, BooleanMasksHideSomeKeysAndShowMost) {
  RequestMix mix = Mix({"length=64,query_heads=1,mask=boolean"});
  const AttentionArgs args = mix.Args(mix.Next());
  ASSERT_TRUE(AttentionProblem::Create(args).ok());
  int visible = 0;
  for (int i = 0; i < 64 * 64; ++i) visible += args.boolean_mask->data[i] == std::byte{1};
  EXPECT_NEAR(visible, 64 * 64 * 7 / 8, 150);
}

TEST(RequestMixTest, TensorsAndVariantsDiffer) {
  RequestMix mix = Mix({"length=16,query_heads=1"});
  Draw draw = mix.Next();
  draw.variant = 5;
  const AttentionArgs args = mix.Args(draw);
  draw.variant = 6;
  const AttentionArgs other = mix.Args(draw);
  const std::size_t bytes = 16 * 64 * sizeof(float);
  EXPECT_NE(std::memcmp(args.query.data, args.key.data, bytes), 0);
  EXPECT_NE(std::memcmp(args.key.data, args.value.data, bytes), 0);
  EXPECT_NE(std::memcmp(args.query.data, other.query.data, bytes), 0);
}

TEST(RequestMixTest, RefusesWhatNoMessageHolds) {
  const auto mix = RequestMix::Create({Parsed("length=uniform:1:4096,query_heads=12")}, kMiB, 1);
  ASSERT_FALSE(mix.ok());
  EXPECT_THAT(mix.status().message(), HasSubstr("--max-message-bytes"));
}

}  // namespace
}  // namespace attend::load

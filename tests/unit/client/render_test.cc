#include "client/cli/render.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

namespace attend::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FormatNumberTest, GivesFourDecimals) {
  EXPECT_EQ(FormatNumber(0.24825), "0.2482");
  EXPECT_EQ(FormatNumber(-1), "-1.0000");
  EXPECT_EQ(FormatNumber(-1e-9), "0.0000");
  EXPECT_EQ(FormatNumber(999999.5), "999999.5000");
  EXPECT_EQ(FormatNumber(-2.5e7), "-2.5000e+07");
}

TEST(FormatNumberTest, NamesWhatIsNotFinite) {
  EXPECT_EQ(FormatNumber(INFINITY), "inf");
  EXPECT_EQ(FormatNumber(-INFINITY), "-inf");
  EXPECT_EQ(FormatNumber(NAN), "nan");
}

TEST(FormatVectorTest, CutsLongVectors) {
  EXPECT_EQ(FormatVector(std::vector<float>{}), "()");
  EXPECT_EQ(FormatVector(std::vector<float>{1, 2}), "(1.0000, 2.0000)");
  EXPECT_EQ(FormatVector(std::vector<float>(9, 0.5f)),
            "(0.5000, 0.5000, 0.5000, 0.5000, ... 9 in all)");
}

TEST(TableTest, AlignsTextLeftAndNumbersRight) {
  Table table({"name", "value", "note"});
  table.AddRow({"a", "1.5000", "x"});
  table.AddRow({"longer", "-10.5000", ""});
  table.AddRow({"inf", "-inf", "y"});
  EXPECT_EQ(table.ToString("> "),
            "> name       value  note\n"
            "> a         1.5000  x\n"
            "> longer  -10.5000\n"
            "> inf         -inf  y\n");
}

TEST(RenderTensorTest, ShowsEveryElementOfASmallTensor) {
  const Tensor tensor =
      Tensor::FromFloats(DType::kFloat16, {2, 1, 2}, std::vector<float>{1, -2, 3, 4.5f});
  EXPECT_EQ(RenderTensor("output", tensor),
            "output FLOAT16 [2, 1, 2]\n"
            "  [0, 0]  1.0000  -2.0000\n"
            "  [1, 0]  3.0000   4.5000\n");
}

TEST(RenderTensorTest, SumsUpALargeTensor) {
  std::vector<float> values(1000, 1.0f);
  values[0] = -3;
  values[1] = NAN;
  const std::string text = RenderTensor("lse", Tensor::FromFloats(DType::kFloat32, {1000}, values));
  EXPECT_EQ(text,
            "lse FLOAT32 [1000]\n"
            "  smallest -3.0000, largest 1.0000, mean 0.9960, not finite: 1 elements\n"
            "  (-3.0000, nan, 1.0000, 1.0000, ... 1000 in all)\n");
}

TEST(RenderTensorTest, CopesWithEmptyScalarAndWideTensors) {
  EXPECT_EQ(RenderTensor("output", Tensor::FromFloats(DType::kFloat32, {0, 3}, {})),
            "output FLOAT32 [0, 3]\n");
  EXPECT_EQ(RenderTensor("x", Tensor::FromFloats(DType::kFloat32, {}, std::vector<float>{2})),
            "x FLOAT32 []\n  2.0000\n");
  EXPECT_THAT(
      RenderTensor("x", Tensor::FromFloats(DType::kFloat32, {1, 17}, std::vector<float>(17, 1.0f))),
      HasSubstr("smallest"));
}

TEST(RenderStatsTest, LeavesOutASpeedThatWasNotMeasured) {
  AttendStats stats{.queue = std::chrono::nanoseconds(1500),
                    .compute = std::chrono::milliseconds(2),
                    .batch_size = 3,
                    .dot_products = 4,
                    .flops = 2'000'000'000,
                    .server = "s"};
  EXPECT_EQ(RenderStats(stats),
            "queue 1.5 us, compute 2.0 ms, batch of 3, 4 dot products, 2000 MFLOP, 1000.0 GFLOP/s, "
            "by s");
  stats.compute = {};
  EXPECT_THAT(RenderStats(stats), Not(HasSubstr("GFLOP/s")));
}

}  // namespace
}  // namespace attend::cli

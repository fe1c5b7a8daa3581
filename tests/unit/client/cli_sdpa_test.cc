// attend sdpa: where results go, what is told of inputs, blocks, and NaN under --check.
#include <cmath>
#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/unit/client/sdpa_fixture.h"

namespace attend::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A file of float64 numbers: that of as many int64 but for its header.
void WriteFloat64Npy(const std::string& path, const Tensor& tensor) {
  Tensor bits{DType::kInt64, tensor.shape, {}};
  for (const float value : tensor.ToFloats()) {
    const double wide = value;
    const auto* bytes = reinterpret_cast<const std::byte*>(&wide);
    bits.data.insert(bits.data.end(), bytes, bytes + sizeof(wide));
  }
  const std::vector<std::byte> file = FormatNpy(bits.view());
  std::string text(reinterpret_cast<const char*>(file.data()), file.size());
  text.replace(text.find("<i8"), 3, "<f8");
  std::ofstream(path, std::ios::binary) << text;
}

TEST_F(SdpaTest, WritesEveryResultToAFileWhereOneIsNamed) {
  const Outcome npy = SdpaOnInputs({"--output", Path("out.npy"), "--weights", "--lse"});
  EXPECT_EQ(npy.code, 0) << npy.err;
  EXPECT_THAT(npy.out, Not(HasSubstr("FLOAT32")));
  EXPECT_THAT(npy.out,
              HasSubstr("written to " + Path("out.npy") + "\nwritten to " + Path("out.lse.npy") +
                        "\nwritten to " + Path("out.weights.npy") + "\nqueue"));
  EXPECT_THAT(ReadNpy(Path("out.npy"))->shape, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(ReadNpy(Path("out.lse.npy"))->shape, ElementsAre(1, 2, 3));
  EXPECT_THAT(ReadNpy(Path("out.weights.npy"))->shape, ElementsAre(1, 2, 3, 3));
  const Outcome all =
      SdpaOnInputs({"--output", Path("out.safetensors"), "--weights", "--scores", "biased"});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("written to " + Path("out.safetensors") + "\nqueue"));
  EXPECT_THAT(all.out, Not(HasSubstr("FLOAT32")));
  const auto file = ReadSafetensors(Path("out.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->tensors.at("scores").shape, ElementsAre(1, 2, 3, 3));
}

TEST_F(SdpaTest, JsonTellsTheFileOfEachResult) {
  const Outcome outcome = SdpaOnInputs({"--json", "--output", Path("out.npy"), "--lse"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["files"],
            nlohmann::json({{"output", Path("out.npy")}, {"lse", Path("out.lse.npy")}}));
  EXPECT_FALSE(outcome.json().contains("lse"));
}

TEST_F(SdpaTest, TellsThatFloat64WasRounded) {
  WriteFloat64Npy(Path("wide.npy"), tensor_);
  const std::vector<std::string> flags = {"--query", Path("wide.npy"), "--input",
                                          Path("all.safetensors")};
  const Outcome text = Sdpa(flags);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.err, "attend: note: " + Path("wide.npy") +
                          " holds float64 numbers, which were rounded to float32\n");
  std::vector<std::string> json_flags = flags;
  json_flags.push_back("--json");
  const Outcome json = Sdpa(json_flags);
  EXPECT_EQ(json.err, "");
  EXPECT_THAT(json.json()["notes"][0].get<std::string>(), HasSubstr("wide.npy holds float64"));
  EXPECT_TRUE(SdpaOnInputs({"--json"}).json()["notes"].empty());
}

TEST_F(SdpaTest, SendsABlockMask) {
  const std::byte on{1};
  ASSERT_TRUE(WriteNpy(Path("blocks.npy"), TensorView::Dense(DType::kBool, {1, 1}, &on)).ok());
  const Outcome both =
      SdpaOnInputs({"--block-mask", Path("blocks.npy"), "--block-size", "128", "--check"});
  ASSERT_EQ(both.code, 0) << both.err << both.out;
  EXPECT_EQ(LastRequest().options().block_mask().query_block_size(), 128);
  EXPECT_EQ(LastRequest().options().block_mask().key_block_size(), 128);
  EXPECT_THAT(LastRequest().options().block_mask().blocks().shape(), ElementsAre(1, 1));
  const Outcome own = SdpaOnInputs({"--block-mask", Path("blocks.npy"), "--key-block-size", "192"});
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(LastRequest().options().block_mask().query_block_size(), 64);
  EXPECT_EQ(LastRequest().options().block_mask().key_block_size(), 192);
  const Outcome alone = SdpaOnInputs({"--block-size", "64"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--block-size: does nothing without --block-mask"));
  const Outcome odd = SdpaOnInputs({"--block-mask", Path("blocks.npy"), "--block-size", "65"});
  EXPECT_EQ(odd.code, 4);
  EXPECT_THAT(odd.err, HasSubstr("options.block_mask.query_block_size was given by "
                                 "--block-size 65\n"));
}

TEST_F(SdpaTest, CheckTellsOfNan) {
  std::vector<float> values = tensor_.ToFloats();
  values[0] = NAN;  // in query 0 of head 0: its 4 outputs are NaN
  const Tensor query = Tensor::FromFloats(DType::kFloat32, tensor_.shape, values);
  ASSERT_TRUE(WriteNpy(Path("nan.npy"), query.view()).ok());
  const std::vector<std::string> flags = {"--query", Path("nan.npy"), "--key",  Path("q.npy"),
                                          "--value", Path("q.npy"),   "--check"};
  const Outcome outcome = Sdpa(flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("24 elements (4 of them NaN in both), "));
  std::vector<std::string> json = flags;
  json.push_back("--json");
  EXPECT_EQ(Sdpa(json).json()["check"]["nan_elements"], 4);
  EXPECT_EQ(Sdpa(json).json()["check"]["nan_in_one"], 0);
  EXPECT_THAT(SdpaOnInputs({"--check"}).out, Not(HasSubstr("NaN")));
}

}  // namespace
}  // namespace attend::cli

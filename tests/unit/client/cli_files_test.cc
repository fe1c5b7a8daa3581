#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "client/cli/tensor_files.h"
#include "core/base/npy.h"
#include "core/base/safetensors.h"
#include "tests/unit/client/cli_fixture.h"

namespace attend::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TensorFilesTest : public TempFolderTest {
 protected:
  TensorFilesTest() {
    EXPECT_TRUE(WriteNpy(Path("a.npy"), tensor_.view()).ok());
    EXPECT_TRUE(WriteSafetensors(Path("one.safetensors"), {{{"only", tensor_}}, {}}).ok());
    EXPECT_TRUE(
        WriteSafetensors(Path("two.safetensors"), {{{"q", tensor_}, {"k", tensor_}}, {}}).ok());
  }

  const Tensor tensor_ = Tensor::FromFloats(DType::kFloat32, {3}, std::vector<float>{1, 2, 3});
};

TEST_F(TensorFilesTest, ReadsBothFormats) {
  for (const char* spec :
       {"a.npy", "one.safetensors", "one.safetensors:only", "two.safetensors:k"}) {
    const absl::StatusOr<Tensor> tensor = ReadTensor(Path(spec));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_THAT(tensor->ToFloats(), ElementsAre(1, 2, 3)) << spec;
  }
}

TEST_F(TensorFilesTest, SaysWhatAFileHolds) {
  EXPECT_THAT(std::string(ReadTensor(Path("two.safetensors")).status().message()),
              HasSubstr("holds 2 tensors"));
  EXPECT_THAT(std::string(ReadTensor(Path("two.safetensors:v")).status().message()),
              HasSubstr("has no tensor v; it holds: k FLOAT32 [3], q FLOAT32 [3]"));
  EXPECT_THAT(std::string(ReadTensor(Path("a.txt")).status().message()),
              HasSubstr("expected FILE.npy"));
  EXPECT_EQ(ReadTensor(Path("none.npy")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TensorFilesTest, TakesTheFirstNameThatIsThere) {
  EXPECT_TRUE(ReadNamedTensor(Path("two.safetensors"), {"query", "q"}).ok());
  EXPECT_THAT(
      std::string(ReadNamedTensor(Path("two.safetensors"), {"value", "v"}).status().message()),
      HasSubstr("has no tensor value or v"));
}

TEST_F(TensorFilesTest, ReadsNumbersFromTheCommandLine) {
  EXPECT_THAT(ReadTensorOrNumbers("0.5,-1,-inf")->ToFloats(), ElementsAre(0.5f, -1, -INFINITY));
  EXPECT_THAT(ReadTensorOrNumbers(Path("a.npy"))->ToFloats(), ElementsAre(1, 2, 3));
  EXPECT_FALSE(ReadTensorOrNumbers("0.5,x").ok());
}

TEST_F(TensorFilesTest, ConvertsFloatsAlone) {
  EXPECT_EQ(ConvertFloats(tensor_, DType::kFloat16, "--query")->dtype, DType::kFloat16);
  const Tensor booleans{DType::kBool, {1}, {std::byte{1}}};
  EXPECT_THAT(std::string(ConvertFloats(booleans, DType::kFloat16, "--query").status().message()),
              HasSubstr("--query: is BOOL"));
}

TEST_F(TensorFilesTest, WritesAllResults) {
  AttendResult result{.output = tensor_, .lse = tensor_};
  EXPECT_FALSE(CheckResultPath(Path("out.txt")).ok());
  ASSERT_TRUE(CheckResultPath(Path("out.npy")).ok());
  ASSERT_TRUE(WriteResult(Path("out.npy"), result).ok());
  EXPECT_THAT(ReadNpy(Path("out.npy"))->ToFloats(), ElementsAre(1, 2, 3));
  EXPECT_THAT(ReadNpy(Path("out.lse.npy"))->ToFloats(), ElementsAre(1, 2, 3));
  ASSERT_TRUE(WriteResult(Path("out.safetensors"), result).ok());
  const auto file = ReadSafetensors(Path("out.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.count("output"), 1u);
  EXPECT_EQ(file->tensors.count("lse"), 1u);
  EXPECT_EQ(file->tensors.count("weights"), 0u);
}

}  // namespace
}  // namespace attend::cli

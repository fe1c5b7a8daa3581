#include "core/base/tensor.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attend {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

// Expects INVALID_ARGUMENT for exactly this field.
void ExpectViolation(const absl::Status& status, const std::string& field) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto violation = GetFieldViolation(status);
  ASSERT_TRUE(violation.has_value()) << status;
  EXPECT_EQ(violation->field, field);
}

TEST(CheckedElementCountTest, CountsElements) {
  EXPECT_EQ(*CheckedElementCount({}, "x"), 1);
  EXPECT_EQ(*CheckedElementCount(Dims{5}, "x"), 5);
  EXPECT_EQ(*CheckedElementCount(Dims{2, 3, 4}, "x"), 24);
  EXPECT_EQ(*CheckedElementCount(Dims{2, 0, 4}, "x"), 0);
}

TEST(CheckedElementCountTest, RefusesNegativeSizesByPosition) {  // B9
  ExpectViolation(CheckedElementCount(Dims{-1, 16}, "query").status(), "query.shape[0]");
  ExpectViolation(CheckedElementCount(Dims{2, 3, kMin}, "key").status(), "key.shape[2]");
  ExpectViolation(CheckedElementCount(Dims{0, -1}, "key").status(), "key.shape[1]");
}

TEST(CheckedElementCountTest, RefusesOverflow) {  // B6, B7
  for (const Dims& shape :
       {Dims{kMax, 2}, Dims{std::int64_t{1} << 32, std::int64_t{1} << 32}, Dims{kMax},
        Dims{std::int64_t{1} << 60}, Dims{0, kMax, kMax}, Dims{kMax, kMax, 0}}) {
    ExpectViolation(CheckedElementCount(shape, "value").status(), "value.shape");
  }
  // The largest count whose bytes, at 8 an element, fit an int64.
  EXPECT_EQ(*CheckedElementCount(Dims{kMax / 8}, "x"), kMax / 8);
}

TEST(TensorTest, DenseStridesAreRowMajor) {
  EXPECT_THAT(DenseStrides(Dims{2, 3, 4}), ElementsAre(12, 4, 1));
  EXPECT_THAT(DenseStrides({}), SizeIs(0));
  EXPECT_THAT(DenseStrides(Dims{3, 0, 2}), ElementsAre(2, 2, 1));
}

TEST(TensorTest, ShapesPrint) {
  EXPECT_EQ(ShapeString(Dims{2, 12, 512, 64}), "[2, 12, 512, 64]");
  EXPECT_EQ(ShapeString({}), "[]");
}

TEST(CheckedTensorViewTest, NeedsExactlyTheShapesBytes) {  // B12
  const std::vector<std::byte> bytes(25);
  const auto view = CheckedTensorView(DType::kFloat32, {2, 3}, std::span(bytes).first(24), "query");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->data, bytes.data());
  EXPECT_THAT(view->strides, ElementsAre(3, 1));
  EXPECT_EQ(view->num_elements(), 6);
  EXPECT_EQ(view->rank(), 2);
  EXPECT_EQ(view->at(4), bytes.data() + 16);

  for (const std::size_t size : {0, 6, 23, 25}) {
    const absl::Status status =
        CheckedTensorView(DType::kFloat32, {2, 3}, std::span(bytes).first(size), "query").status();
    ExpectViolation(status, "query.data");
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected 24"));
  }
}

TEST(CheckedTensorViewTest, RefusesShapesWhoseByteCountWraps) {  // B6
  // 2^62 elements of 4 bytes are 2^64 bytes, which wraps to the 0 bytes that are there.
  ExpectViolation(CheckedTensorView(DType::kFloat32, {std::int64_t{1} << 62}, {}, "key").status(),
                  "key.shape");
}

TEST(CheckedTensorViewTest, EmptyTensorsHaveNoBytes) {
  const auto view = CheckedTensorView(DType::kFloat16, {2, 0}, {}, "query");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->num_elements(), 0);
}

TEST(TensorTest, ZerosAreZeros) {
  const auto tensor = Tensor::Zeros(DType::kInt64, {2, 2});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->data, SizeIs(32));
  EXPECT_THAT(tensor->data, Each(std::byte{0}));
  EXPECT_EQ(tensor->num_elements(), 4);
  ExpectViolation(Tensor::Zeros(DType::kBool, {-2}, "mask").status(), "mask.shape[0]");
}

TEST(TensorTest, FloatsRoundTripThroughEachFloatDType) {
  const std::vector<float> values = {0, -1.5f, 2, 0.25f};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const Tensor tensor = Tensor::FromFloats(dtype, {2, 2}, values);
    EXPECT_EQ(tensor.data.size(), 4 * SizeOf(dtype));
    EXPECT_EQ(tensor.ToFloats(), values);
  }
}

TEST(TensorTest, FromFloatsRoundsToTheDType) {
  const float value = 1.00390625f;  // 1 + 2^-8: a tie in bfloat16, exact in half
  EXPECT_THAT(Tensor::FromFloats(DType::kBFloat16, {1}, {&value, 1}).ToFloats(), ElementsAre(1));
  EXPECT_THAT(Tensor::FromFloats(DType::kFloat16, {1}, {&value, 1}).ToFloats(), ElementsAre(value));
}

TEST(TensorTest, CopiesAreIndependentAndViewsAreNot) {
  const float value = 1;
  Tensor original = Tensor::FromFloats(DType::kFloat32, {1}, {&value, 1});
  const Tensor copy = original;
  StoreFloat(DType::kFloat32, original.mutable_view().data, 2);
  EXPECT_THAT(original.ToFloats(), ElementsAre(2));
  EXPECT_THAT(copy.ToFloats(), ElementsAre(1));
}

}  // namespace
}  // namespace attend

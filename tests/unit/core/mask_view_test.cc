// Masks and block masks: what is refused, and how the rest broadcasts. pitfalls.md: A13, A14, A16,
// A17, A55.
#include "core/base/mask_view.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "tests/unit/core/attention_test_support.h"

namespace attend::testing {
namespace {

constexpr std::int64_t kTarget[] = {2, 4, 3, 5};

void ExpectRefused(const absl::Status& status, const std::string& field,
                   const std::vector<std::string>& says) {
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const auto violation = GetFieldViolation(status);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field, field);
  EXPECT_NE(violation->description.find("expected"), std::string::npos) << status;
  for (const std::string& words : says) {
    EXPECT_NE(violation->description.find(words), std::string::npos) << status << " / " << words;
  }
}

// --- Refusals -----------------------------------------------------------------------------------

TEST(BroadcastBooleanMask, RefusesOtherDtypes) {  // pitfalls A13, A14
  for (const DType dtype :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt8, DType::kInt64}) {
    const Tensor mask = *Tensor::Zeros(dtype, {5});
    ExpectRefused(BroadcastBooleanMask(mask.view(), kTarget, "m").status(), "m.dtype",
                  {std::string(Name(dtype)), "BOOL"});
  }
}

TEST(BroadcastAdditiveMask, RefusesDtypesThatAreNoFloats) {  // pitfalls A13
  for (const DType dtype : {DType::kBool, DType::kInt8, DType::kInt64}) {
    const Tensor mask = *Tensor::Zeros(dtype, {5});
    ExpectRefused(BroadcastAdditiveMask(mask.view(), kTarget, "m").status(), "m.dtype",
                  {std::string(Name(dtype)), "FLOAT32, BFLOAT16 or FLOAT16"});
  }
}

// Both kinds of mask refuse a shape alike.
void ExpectShapeRefused(const Dims& shape, const std::string& field,
                        const std::vector<std::string>& says) {
  const TensorView boolean{DType::kBool, shape, Dims(shape.size(), 0), nullptr};
  const TensorView additive{DType::kFloat32, shape, Dims(shape.size(), 0), nullptr};
  ExpectRefused(BroadcastBooleanMask(boolean, kTarget, "m").status(), field, says);
  ExpectRefused(BroadcastAdditiveMask(additive, kTarget, "m").status(), field, says);
}

TEST(BroadcastMask, RefusesShapesThatDoNotBroadcast) {  // pitfalls A16, A55
  ExpectShapeRefused({1, 2, 4, 3, 5}, "m.shape", {"[1, 2, 4, 3, 5]", "at most 4"});
  ExpectShapeRefused({4}, "m.shape[0]", {"is 4", "1 or 5", "[2, 4, 3, 5]"});
  ExpectShapeRefused({0}, "m.shape[0]", {"is 0", "1 or 5"});
  ExpectShapeRefused({5, 3}, "m.shape[0]", {"is 5", "1 or 3"});
  ExpectShapeRefused({3, 3, 5}, "m.shape[0]", {"is 3", "1 or 4"});
  ExpectShapeRefused({3, 1, 1, 1}, "m.shape[0]", {"is 3", "1 or 2"});
  ExpectShapeRefused({2, 4, 3, 6}, "m.shape[3]", {"is 6", "1 or 5"});
  ExpectShapeRefused({2, -4, 3, 5}, "m.shape[1]", {"is -4", "at least 0"});
  ExpectShapeRefused({std::int64_t{1} << 40, std::int64_t{1} << 40}, "m.shape", {"fits"});
}

TEST(BroadcastBooleanMask, RefusesBytesOtherThan0And1WithTheirIndex) {  // pitfalls A13
  for (const int byte : {2, 0x7f, 0x80, 0xff}) {
    for (const std::size_t index : {0u, 7u, 14u}) {
      Tensor mask = Bools({3, 5}, 1, 0.5);
      mask.data[index] = static_cast<std::byte>(byte);
      ExpectRefused(BroadcastBooleanMask(mask.view(), kTarget, "m").status(),
                    "m.data[" + std::to_string(index) + "]",
                    {"is " + std::to_string(byte), "0 or 1"});
    }
  }
}

TEST(BroadcastAdditiveMask, RefusesNaNAndPlusInfinityWithTheirIndex) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const float bad : {kNaN, kInf}) {
      std::vector<float> values(15, -kInf);
      values[8] = bad;
      const Tensor mask = Tensor::FromFloats(dtype, {3, 5}, values);
      ExpectRefused(BroadcastAdditiveMask(mask.view(), kTarget, "m").status(), "m.data[8]",
                    {bad == kInf ? "is inf" : "nan", "finite number or -inf"});
    }
  }
}

TEST(BroadcastMask, IndexOfAnErrorIsThatOfTheDenseTensorWhateverTheStrides) {
  Tensor storage = *Tensor::Zeros(DType::kBool, {5, 3});
  storage.data[4 * 3 + 1] = std::byte{3};
  TensorView transposed = storage.view();
  transposed.shape = {3, 5};
  transposed.strides = {1, 3};
  ExpectRefused(BroadcastBooleanMask(transposed, kTarget, "m").status(), "m.data[9]", {"is 3"});
}

// --- Broadcasting -------------------------------------------------------------------------------

TEST(BroadcastMask, EveryLegalShapeReadsItsOwnElements) {  // pitfalls A16, A17
  for (int shape_bits = 0; shape_bits < 16; ++shape_bits) {
    for (std::int64_t rank = 0; rank <= 4; ++rank) {
      Dims shape;
      for (std::int64_t axis = 4 - rank; axis < 4; ++axis) {
        shape.push_back((shape_bits >> axis) & 1 ? kTarget[axis] : 1);
      }
      std::int64_t count = 1;
      for (const std::int64_t size : shape) count *= size;
      std::vector<float> values(count);
      for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
      const Tensor mask = Tensor::FromFloats(DType::kFloat32, shape, values);
      const auto view = BroadcastAdditiveMask(mask.view(), kTarget, "m");
      ASSERT_TRUE(view.ok()) << view.status();
      for (std::int64_t i = 0; i < 2 * 4 * 3 * 5; ++i) {
        const std::int64_t at[] = {i / 60, i / 15 % 4, i / 5 % 3, i % 5};
        std::int64_t expected = 0;
        for (std::int64_t axis = 4 - rank; axis < 4; ++axis) {
          const std::int64_t size = shape[axis - (4 - rank)];
          expected = expected * size + (size == 1 ? 0 : at[axis]);
        }
        ASSERT_EQ(LoadFloat(view->dtype, view->at(at[0], at[1], at[2], at[3])), expected)
            << ShapeString(shape);
      }
    }
  }
}

TEST(BroadcastMask, AcceptsAMaskOverNoElements) {
  constexpr std::int64_t kEmpty[] = {2, 4, 3, 0};
  const TensorView mask{DType::kBool, {3, 0}, {0, 1}, nullptr};
  EXPECT_TRUE(BroadcastBooleanMask(mask, kEmpty, "m").ok());
  const Tensor one = Bools({1}, 1, 1);
  EXPECT_TRUE(BroadcastBooleanMask(one.view(), kEmpty, "m").ok());
}

TEST(BroadcastAdditiveMask, AcceptsMinusInfinityAndTheLargestFinite) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const float largest = dtype == DType::kFloat16 ? 65504.0f : 0x1.fep127f;
    const Tensor mask =
        Tensor::FromFloats(dtype, {5}, std::vector<float>{-kInf, largest, -largest, 0, -0.0f});
    EXPECT_TRUE(BroadcastAdditiveMask(mask.view(), kTarget, "m").ok());
  }
}

// --- In a request -------------------------------------------------------------------------------

TEST(AttentionProblemMasks, AreRefusedByTheirFieldOfTheRequest) {
  Request request = MakeRequest({2, 4, 2, 3, 5, 8, 6});
  request.boolean_mask = Bools({6}, 1, 1);
  ExpectRefused(AttentionProblem::Create(request.Args()).status(), "boolean_mask.shape[0]",
                {"is 6", "1 or 5", "[2, 4, 3, 5]"});
  request.boolean_mask.reset();
  request.additive_mask = Normal(DType::kFloat32, {2, 4, 3, 5}, 1);
  StoreFloat(DType::kFloat32, request.additive_mask->data.data() + 4 * 119, kInf);
  ExpectRefused(AttentionProblem::Create(request.Args()).status(), "additive_mask.data[119]",
                {"inf"});
}

Request PackedRequest() {
  Request request;
  request.query = Normal(DType::kFloat32, {6, 4, 8}, 1);
  request.key = Normal(DType::kFloat32, {9, 2, 8}, 2);
  request.value = Normal(DType::kFloat32, {9, 2, 6}, 3);
  request.args.layout = Layout::kPacked;
  request.args.query_lengths = {2, 4};
  request.args.kv_lengths = {4, 5};
  return request;
}

TEST(AttentionProblemMasks, OfPackedTokensMayDifferOnlyByHead) {
  for (const Dims& shape :
       std::vector<Dims>{{4}, {5}, {2, 1}, {4, 5}, {2, 1, 1, 1}, {2, 4, 1, 1}}) {
    Request request = PackedRequest();
    request.boolean_mask = Bools(shape, 1, 1);
    const auto violation = GetFieldViolation(AttentionProblem::Create(request.Args()).status());
    ASSERT_TRUE(violation.has_value()) << ShapeString(shape);
    EXPECT_EQ(violation->field.substr(0, 18), "boolean_mask.shape");
    request = PackedRequest();
    request.blocks = Bools(shape, 1, 1);
    EXPECT_FALSE(AttentionProblem::Create(request.Args()).ok()) << ShapeString(shape);
  }
  for (const Dims& shape : std::vector<Dims>{{}, {1}, {4, 1, 1}, {1, 4, 1, 1}, {1, 1, 1, 1}}) {
    Request request = PackedRequest();
    request.boolean_mask = Bools(shape, 1, 0.5);
    request.additive_mask = Normal(DType::kFloat32, shape, 2);
    request.blocks = Bools(shape, 3, 0.5);
    EXPECT_TRUE(AttentionProblem::Create(request.Args()).ok()) << ShapeString(shape);
  }
}

void SetBlockSizes(Request& request, std::int64_t query, std::int64_t key) {
  BlockMask& mask = request.args.options.block_mask.emplace();
  mask.query_block_size = query;
  mask.key_block_size = key;
}

TEST(AttentionProblemMasks, BlockSizesMustBePositiveMultiplesOf64) {
  for (const std::int64_t size :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{65}, std::int64_t{-64},
        std::numeric_limits<std::int64_t>::max()}) {
    Request request = MakeRequest({1, 2, 1, 130, 200, 8, 8});
    request.blocks = Bools({1}, 1, 1);
    SetBlockSizes(request, size, 64);
    ExpectRefused(AttentionProblem::Create(request.Args()).status(),
                  "options.block_mask.query_block_size",
                  {"is " + std::to_string(size), "positive multiple of 64"});
    SetBlockSizes(request, 128, size);
    ExpectRefused(AttentionProblem::Create(request.Args()).status(),
                  "options.block_mask.key_block_size",
                  {"is " + std::to_string(size), "positive multiple of 64"});
  }
}

TEST(AttentionProblemMasks, BlocksMustCoverTheLengthsRoundedUp) {
  Request request = MakeRequest({2, 4, 2, 130, 200, 8, 8});  // 3 x 2 blocks of 64 x 128
  for (const Dims& shape : std::vector<Dims>{{2, 2}, {3, 3}, {4, 2}, {3, 4, 2}, {3, 1, 1, 1}}) {
    request.blocks = Bools(shape, 1, 1);
    SetBlockSizes(request, 64, 128);
    const auto violation = GetFieldViolation(AttentionProblem::Create(request.Args()).status());
    ASSERT_TRUE(violation.has_value()) << ShapeString(shape);
    EXPECT_EQ(violation->field.substr(0, 32), "options.block_mask.blocks.shape[");
  }
  for (const Dims& shape : std::vector<Dims>{{3, 2}, {1}, {2, 4, 3, 2}, {4, 1, 2}, {2, 1, 3, 1}}) {
    request.blocks = Bools(shape, 1, 1);
    SetBlockSizes(request, 64, 128);
    EXPECT_TRUE(AttentionProblem::Create(request.Args()).ok()) << ShapeString(shape);
  }
}

TEST(AttentionProblemMasks, BlocksMustBeBools) {
  Request request = MakeRequest({1, 2, 1, 64, 64, 8, 8});
  request.blocks = Tensor::FromFloats(DType::kFloat32, {1}, std::vector<float>{1});
  ExpectRefused(AttentionProblem::Create(request.Args()).status(),
                "options.block_mask.blocks.dtype", {"FLOAT32", "BOOL"});
  request.blocks = Bools({1}, 1, 1);
  request.blocks->data[0] = std::byte{2};
  ExpectRefused(AttentionProblem::Create(request.Args()).status(),
                "options.block_mask.blocks.data[0]", {"is 2", "0 or 1"});
}

}  // namespace
}  // namespace attend::testing

#include "client/cli/check.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "core/base/reference.h"

namespace attend::cli {
namespace {

constexpr std::int64_t kLength = 5;
constexpr std::int64_t kDim = 4;

// A small problem and its answer, rounded from the reference.
struct Case {
  std::vector<float> values;
  AttentionArgs args;
  AttendResult result;

  explicit Case(DType output_dtype = DType::kFloat32, std::int64_t query_length = kLength,
                float scale = 0.5f) {
    for (int i = 0; i < kLength * kDim; ++i) values.push_back(std::sin(static_cast<float>(i)));
    args.query = FloatTensorView(values, {1, 1, kLength, kDim});
    args.key = args.value = args.query;
    args.options.causal = true;
    args.options.scale = scale;
    args.query_lengths = {query_length};
    args.output = {.dtype = output_dtype, .lse = true};
    Solve();
  }

  void Solve() {
    const DType output_dtype = *args.output.dtype;
    const auto problem = AttentionProblem::Create(args);
    EXPECT_TRUE(problem.ok()) << problem.status();
    const ReferenceResult reference = ReferenceAttention(*problem);
    const std::vector<float> output(reference.output.begin(), reference.output.end());
    const std::vector<float> lse(reference.lse.begin(), reference.lse.end());
    result.output = Tensor::FromFloats(output_dtype, problem->output_shape(), output);
    result.lse = Tensor::FromFloats(DType::kFloat32, problem->lse_shape(), lse);
  }

  void SetOutput(std::size_t index, float value) {
    StoreFloat(result.output.dtype, result.output.data.data() + index * SizeOf(result.output.dtype),
               value);
  }
  CheckReport Check() const {
    const absl::StatusOr<CheckReport> report = CheckAgainstReference(args, result);
    EXPECT_TRUE(report.ok()) << report.status();
    return *report;
  }
};

TEST(CheckTest, PassesARoundedReference) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const CheckReport report = Case(dtype).Check();
    EXPECT_TRUE(report.passed()) << Name(dtype) << " " << report.max_error_over_bound;
    EXPECT_EQ(report.elements, kLength * kDim + kLength);
  }
}

TEST(CheckTest, FailsAnOutputThatIsOff) {
  Case off;
  off.SetOutput(7, off.result.output.ToFloats()[7] + 1e-4f);
  const CheckReport report = off.Check();
  EXPECT_FALSE(report.passed());
  EXPECT_NEAR(report.max_error, 1e-4, 1e-6);
}

TEST(CheckTest, OfManyRowsComparesSomeThatAreEvenlySpread) {
  Case off;
  off.SetOutput(0, 99);  // in the first row
  const auto check = [&off](std::int64_t max_rows) {
    return *CheckAgainstReference(off.args, off.result, max_rows);
  };
  EXPECT_EQ(check(2).elements, 2 * (kDim + 1));
  EXPECT_TRUE(check(1).passed());
  EXPECT_FALSE(check(kLength).passed());
  off.SetOutput(kDim * (kLength - 1), 99);  // the last row is always among them
  EXPECT_FALSE(check(1).passed());
}

// Of keys that are equal: scores that differ much leave one weight of 1, whatever their errors.
TEST(CheckTest, AllowsMoreWhereScoresAreLarge) {
  const std::vector<float> keys(kLength * kDim, 0.7f);
  const auto share_of_an_error = [&keys](float scale) {
    Case large(DType::kFloat32, kLength, scale);
    large.args.key = FloatTensorView(keys, {1, 1, kLength, kDim});
    large.Solve();
    constexpr std::size_t kIndex = kDim * (kLength - 1);
    large.SetOutput(kIndex, large.result.output.ToFloats()[kIndex] + 1e-5f);
    return large.Check().max_error_over_bound;
  };
  EXPECT_GT(share_of_an_error(1), 1);
  EXPECT_LT(share_of_an_error(1000), share_of_an_error(1) / 10);
}

TEST(CheckTest, FailsAnLseThatIsOff) {
  Case off;
  StoreFloat(DType::kFloat32, off.result.lse->data.data(), 9.0f);
  EXPECT_FALSE(off.Check().passed());
}

TEST(CheckTest, FailsAFiniteLseOfARowWithoutKeys) {
  Case empty;
  empty.args.kv_lengths = {0};
  empty.Solve();
  EXPECT_TRUE(empty.Check().passed());
  StoreFloat(DType::kFloat32, empty.result.lse->data.data(), 9.0f);
  EXPECT_FALSE(empty.Check().passed());
}

TEST(CheckTest, FailsWhatShouldNotBeNan) {
  Case off;
  off.SetOutput(0, NAN);
  EXPECT_FALSE(off.Check().passed());
  EXPECT_EQ(off.Check().nan_in_one, 1);
  EXPECT_EQ(off.Check().nan_elements, 0);
}

TEST(CheckTest, ExpectsNanWhereTheDefinitionGivesNan) {
  Case nan;
  nan.values[kDim * (kLength - 1)] = NAN;  // the last query, seen by no other
  EXPECT_FALSE(nan.Check().passed());
  for (int i = 0; i < kDim; ++i)
    nan.SetOutput(static_cast<std::size_t>(kDim * (kLength - 1) + i), NAN);
  StoreFloat(DType::kFloat32, nan.result.lse->data.data() + (kLength - 1) * sizeof(float), NAN);
  EXPECT_TRUE(nan.Check().passed());
  EXPECT_EQ(nan.Check().nan_elements, kDim + 1);
  EXPECT_EQ(nan.Check().nan_in_one, 0);
}

TEST(CheckTest, ExpectsZerosPastAnItemsLength) {
  Case padded(DType::kFloat32, kLength - 1);
  EXPECT_TRUE(padded.Check().passed());
  EXPECT_EQ(padded.Check().elements, kLength * kDim + kLength);
  padded.SetOutput(kDim * (kLength - 1), 1e-30f);
  EXPECT_FALSE(padded.Check().passed());
}

TEST(CheckTest, RefusesAnAnswerOfAnotherShape) {
  Case other;
  other.result.output.shape = {1, 1, kDim, kLength};
  EXPECT_FALSE(CheckAgainstReference(other.args, other.result).ok());
}

}  // namespace
}  // namespace attend::cli

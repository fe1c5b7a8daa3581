#include "server/wire/attend_response.h"

#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"
#include "server/wire/tensor.h"

namespace attend {
namespace {

// One item of 2 heads, 3 queries and 5 keys; head_dim 4, value_dim 6.
class AttendResponseTest : public testing::Test {
 protected:
  AttendResponseTest()
      : query_(*Tensor::Zeros(DType::kFloat32, {1, 2, 3, 4})),
        key_(*Tensor::Zeros(DType::kFloat32, {1, 1, 5, 4})),
        value_(*Tensor::Zeros(DType::kFloat32, {1, 1, 5, 6})) {
    args_.query = query_.view();
    args_.key = key_.view();
    args_.value = value_.view();
  }

  AttentionProblem Problem() const {
    absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(args_);
    EXPECT_TRUE(problem.ok()) << problem.status();
    return *std::move(problem);
  }

  Tensor query_;
  Tensor key_;
  Tensor value_;
  AttentionArgs args_;
};

void ExpectTensor(const v1::Tensor& tensor, v1::DataType dtype,
                  const std::vector<std::int64_t>& shape, const std::byte* address) {
  EXPECT_EQ(tensor.dtype(), dtype);
  EXPECT_EQ(std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end()), shape);
  const absl::StatusOr<TensorView> view = ToTensorView(tensor, "tensor");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->data, address);
}

TEST_F(AttendResponseTest, HoldsTheOutputAloneUnlessMoreIsAsked) {
  v1::AttendResponse response;
  const absl::StatusOr<AttentionOutputs> outputs = AllocateResponse(Problem(), response);
  ASSERT_TRUE(outputs.ok());
  ExpectTensor(response.output(), v1::DATA_TYPE_FLOAT32, {1, 2, 3, 6}, outputs->output);
  EXPECT_FALSE(response.has_lse() || response.has_weights() || response.has_scores());
  EXPECT_EQ(outputs->lse, nullptr);
  EXPECT_EQ(outputs->weights, nullptr);
  EXPECT_EQ(outputs->scores, nullptr);
}

TEST_F(AttendResponseTest, LetsKernelsWriteEveryResultIntoTheMessage) {
  args_.output.dtype = DType::kBFloat16;
  args_.output.lse = true;
  args_.output.weights = true;
  args_.output.scores = ScoreStage::kScaled;
  v1::AttendResponse response;
  const absl::StatusOr<AttentionOutputs> outputs = AllocateResponse(Problem(), response);
  ASSERT_TRUE(outputs.ok());
  ExpectTensor(response.output(), v1::DATA_TYPE_BFLOAT16, {1, 2, 3, 6}, outputs->output);
  ExpectTensor(response.lse(), v1::DATA_TYPE_FLOAT32, {1, 2, 3}, outputs->lse);
  ExpectTensor(response.weights(), v1::DATA_TYPE_FLOAT32, {1, 2, 3, 5}, outputs->weights);
  ExpectTensor(response.scores(), v1::DATA_TYPE_FLOAT32, {1, 2, 3, 5}, outputs->scores);
  std::memset(outputs->lse, 7, 24);
  EXPECT_EQ(response.lse().data(), std::string(24, '\7'));
}

TEST_F(AttendResponseTest, IsNeverLargerThanForetold) {
  args_.output.lse = true;
  args_.output.weights = true;
  args_.output.scores = ScoreStage::kBiased;
  const AttentionProblem problem = Problem();
  v1::AttendResponse response;
  ASSERT_TRUE(AllocateResponse(problem, response).ok());
  const TaskStats stats{.queue = absl::Hours(1), .compute = absl::Hours(1), .batch_size = 1 << 30};
  FillStats(problem, stats, std::string(255, 's'), *response.mutable_stats());
  EXPECT_LE(static_cast<std::int64_t>(response.ByteSizeLong()), ResponseBytes(problem));
  EXPECT_GE(static_cast<std::int64_t>(response.ByteSizeLong()), ResponseBytes(problem) - 1024);
}

TEST_F(AttendResponseTest, IsRefusedPastTheMessageLimitAndNotBefore) {
  const AttentionProblem problem = Problem();
  const std::int64_t bytes = ResponseBytes(problem);
  EXPECT_TRUE(CheckResponseSize(problem, bytes).ok());
  const absl::Status status = CheckResponseSize(problem, bytes - 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(status)->field, "query.shape");
}

TEST_F(AttendResponseTest, NamesWhatTakesMostOfTheMessage) {
  query_ = *Tensor::Zeros(DType::kFloat32, {1, 2, 3, 4});
  key_ = *Tensor::Zeros(DType::kFloat32, {1, 1, 50, 4});
  value_ = *Tensor::Zeros(DType::kFloat32, {1, 1, 50, 1});
  args_.key = key_.view();
  args_.value = value_.view();
  args_.output.dtype = DType::kBFloat16;
  const auto named = [this] {
    return GetFieldViolation(CheckResponseSize(Problem(), 1)).value_or(FieldViolation()).field;
  };
  EXPECT_EQ(named(), "query.shape");
  args_.output.lse = true;
  EXPECT_EQ(named(), "output.lse");
  args_.output.scores = ScoreStage::kScaled;
  EXPECT_EQ(named(), "output.scores");
  args_.output.weights = true;
  EXPECT_EQ(named(), "output.weights");
}

TEST_F(AttendResponseTest, ReportsWhatHappened) {
  v1::Stats stats;
  FillStats(Problem(),
            {.queue = absl::Milliseconds(3), .compute = absl::Seconds(2), .batch_size = 5}, "here",
            stats);
  EXPECT_EQ(stats.queue().nanos(), 3'000'000);
  EXPECT_EQ(stats.compute().seconds(), 2);
  EXPECT_EQ(stats.batch_size(), 5);
  EXPECT_EQ(stats.dot_products(), 2 * 3 * 5);
  EXPECT_EQ(stats.flops(), 2 * (4 + 6) * 2 * 3 * 5);
  EXPECT_EQ(stats.server(), "here");
}

}  // namespace
}  // namespace attend

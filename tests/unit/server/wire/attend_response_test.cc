#include "server/wire/attend_response.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"
#include "server/wire/status.h"
#include "tests/unit/server/wire/slices.h"

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

// A name that makes all that the settings allow.
const std::string& LongName() {
  static const auto* const name = new std::string(253, 's');
  return *name;
}

TaskStats LongStats() {
  const absl::Duration longest = absl::Hours(1'000'000) - absl::Nanoseconds(1);
  return {.queue = longest, .compute = longest, .batch_size = std::numeric_limits<int>::max()};
}

v1::Stats StatsOf(const AttentionProblem& problem, const TaskStats& stats = LongStats(),
                  const std::string& name = LongName()) {
  v1::Stats message;
  FillStats(problem, stats, name, message);
  return message;
}

void SetTensor(v1::Tensor& tensor, v1::DataType dtype, const std::vector<std::int64_t>& shape,
               std::byte* data, std::size_t bytes, char fill) {
  std::memset(data, fill, bytes);
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(std::string(bytes, fill));
}

TEST_F(AttendResponseTest, HoldsTheOutputAloneUnlessMoreIsAsked) {
  BufferPool pool;
  const AttentionProblem problem = Problem();
  ResponseMessage message;
  const absl::StatusOr<AttentionOutputs> outputs = message.Allocate(problem, pool, 0);
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ(outputs->lse, nullptr);
  EXPECT_EQ(outputs->weights, nullptr);
  EXPECT_EQ(outputs->scores, nullptr);
  v1::AttendResponse expected;
  *expected.mutable_stats() = StatsOf(problem, {}, "");
  SetTensor(*expected.mutable_output(), v1::DATA_TYPE_FLOAT32, {1, 2, 3, 6}, outputs->output, 144,
            'o');
  EXPECT_EQ(BytesOf(message.Finish(expected.stats())), expected.SerializeAsString());
}

// Byte for byte what protobuf writes, whatever is in it.
TEST_F(AttendResponseTest, IsWhatProtobufWrites) {
  BufferPool pool;
  for (int wanted = 0; wanted < 8; ++wanted) {
    args_.output.dtype = DType::kBFloat16;
    args_.output.lse = (wanted & 1) != 0;
    args_.output.weights = (wanted & 2) != 0;
    args_.output.scores = (wanted & 4) != 0 ? ScoreStage::kScaled : ScoreStage::kNone;
    const AttentionProblem problem = Problem();
    for (const std::uint64_t id :
         {std::uint64_t{0}, std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()}) {
      ResponseMessage message;
      ResponseMessage streamed;
      const auto outputs = message.Allocate(problem, pool, LongName().size());
      const auto also = streamed.Allocate(problem, pool, LongName().size());
      ASSERT_TRUE(outputs.ok() && also.ok());
      v1::AttendStreamResponse expected;
      expected.set_id(id);
      v1::AttendResponse& response = *expected.mutable_response();
      *response.mutable_stats() = StatsOf(problem);
      const auto set = [](v1::Tensor& tensor, v1::DataType dtype,
                          const std::vector<std::int64_t>& shape, std::byte* data, std::byte* same,
                          std::size_t bytes, char fill) {
        SetTensor(tensor, dtype, shape, data, bytes, fill);
        std::memset(same, fill, bytes);
      };
      set(*response.mutable_output(), v1::DATA_TYPE_BFLOAT16, {1, 2, 3, 6}, outputs->output,
          also->output, 72, 'o');
      if (args_.output.lse) {
        set(*response.mutable_lse(), v1::DATA_TYPE_FLOAT32, {1, 2, 3}, outputs->lse, also->lse, 24,
            'l');
      }
      if (args_.output.weights) {
        set(*response.mutable_weights(), v1::DATA_TYPE_FLOAT32, {1, 2, 3, 5}, outputs->weights,
            also->weights, 120, 'w');
      }
      if ((wanted & 4) != 0) {
        set(*response.mutable_scores(), v1::DATA_TYPE_FLOAT32, {1, 2, 3, 5}, outputs->scores,
            also->scores, 120, 's');
      }
      EXPECT_EQ(BytesOf(message.Finish(response.stats())), response.SerializeAsString()) << wanted;
      EXPECT_EQ(BytesOf(streamed.FinishOnStream(response.stats(), id)),
                expected.SerializeAsString())
          << wanted;
    }
  }
  EXPECT_EQ(pool.lent_bytes(), 0);
}

TEST_F(AttendResponseTest, AnEmptyOutputIsPresent) {
  query_ = *Tensor::Zeros(DType::kFloat32, {1, 2, 0, 4});
  args_.query = query_.view();
  BufferPool pool;
  const AttentionProblem problem = Problem();
  ResponseMessage message;
  ASSERT_TRUE(message.Allocate(problem, pool, 4).ok());
  v1::AttendResponse response;
  ASSERT_TRUE(response.ParseFromString(BytesOf(message.Finish(StatsOf(problem, {}, "name")))));
  EXPECT_TRUE(response.output().has_data());
  EXPECT_EQ(response.output().shape(2), 0);
  EXPECT_EQ(response.stats().server(), "name");
}

TEST_F(AttendResponseTest, SendsTheMemoryThatTheKernelWrote) {
  query_ = *Tensor::Zeros(DType::kFloat32, {1, 2, 300, 4});
  args_.query = query_.view();
  args_.output.lse = true;
  BufferPool pool;
  const AttentionProblem problem = Problem();
  ResponseMessage message;
  const absl::StatusOr<AttentionOutputs> outputs = message.Allocate(problem, pool, 10);
  ASSERT_TRUE(outputs.ok());
  for (const std::byte* data : {outputs->output, outputs->lse}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
  }
  {
    const grpc::ByteBuffer buffer = message.Finish(StatsOf(problem, {}, "server"));
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    ASSERT_EQ(slices.size(), 2u);
    const auto end = [](const grpc::Slice& slice) {
      return reinterpret_cast<const std::byte*>(slice.end());
    };
    EXPECT_EQ(end(slices[0]), outputs->output + 2 * 300 * 6 * 4);
    EXPECT_EQ(end(slices[1]), outputs->lse + 2 * 300 * 4);
    EXPECT_GT(pool.lent_bytes(), 0);
  }
  EXPECT_EQ(pool.lent_bytes(), 0);
}

TEST_F(AttendResponseTest, GivesNobodyWhatAnotherRequestLeft) {
  BufferPool pool;
  PooledBuffer before = pool.Acquire(1000);
  std::memset(before.data(), 'x', 1000);
  before.Reset();
  const AttentionProblem problem = Problem();
  ResponseMessage message;
  ASSERT_TRUE(message.Allocate(problem, pool, 0).ok());
  EXPECT_EQ(BytesOf(message.Finish(StatsOf(problem, {}, ""))).find('x'), std::string::npos);
}

TEST_F(AttendResponseTest, HasNoMemoryForMoreThanThePoolLends) {
  BufferPool pool({.max_lent_bytes = 100});
  ResponseMessage message;
  EXPECT_EQ(message.Allocate(Problem(), pool, 0).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(AttendResponseTest, IsNeverLargerThanForetold) {
  args_.output.lse = true;
  args_.output.weights = true;
  args_.output.scores = ScoreStage::kBiased;
  const AttentionProblem problem = Problem();
  BufferPool pool;
  ResponseMessage message;
  ASSERT_TRUE(message.Allocate(problem, pool, LongName().size()).ok());
  const auto size = static_cast<std::int64_t>(
      message.FinishOnStream(StatsOf(problem), std::numeric_limits<std::uint64_t>::max()).Length());
  EXPECT_LE(size, ResponseBytes(problem));
  EXPECT_GE(size, ResponseBytes(problem) - 1024);
}

TEST(StreamErrorTest, CarriesCodeMessageAndDetails) {
  const grpc::Status status =
      ToGrpcStatus(InvalidField("query.shape[2]", "is -1; expected more"), absl::ZeroDuration());
  for (const std::uint64_t id :
       {std::uint64_t{0}, std::uint64_t{7}, std::numeric_limits<std::uint64_t>::max()}) {
    v1::AttendStreamResponse response;
    ASSERT_TRUE(response.ParseFromString(BytesOf(StreamError(status, id))));
    EXPECT_EQ(response.id(), id);
    EXPECT_EQ(response.error().code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(response.error().message(), status.error_message());
    EXPECT_EQ(response.error().SerializeAsString(), status.error_details());
    EXPECT_EQ(response.error().details_size(), 1);
    EXPECT_EQ(response.SerializeAsString(), BytesOf(StreamError(status, id)));
  }
}

TEST_F(AttendResponseTest, IsRefusedPastTheMessageLimitAndNotBefore) {
  const AttentionProblem problem = Problem();
  const std::int64_t bytes = ResponseBytes(problem);
  EXPECT_TRUE(CheckResponseSize(problem, {}, bytes).ok());
  const absl::Status status = CheckResponseSize(problem, {}, bytes - 1);
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
    return GetFieldViolation(CheckResponseSize(Problem(), {}, 1)).value_or(FieldViolation()).field;
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

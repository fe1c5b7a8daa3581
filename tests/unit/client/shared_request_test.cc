// Requests of which parts lie in shared memory. No server is needed: none is called.
#include "client/cpp/shared_request.h"

#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/request.h"
#include "client/cpp/response.h"

namespace attend::client_internal {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kNoLimit = std::int64_t{1} << 31;
constexpr std::uint64_t kMiB = 1 << 20;

class SharedRequestTest : public ::testing::Test {
 protected:
  SharedRequestTest() {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    args_.query = FloatTensorView(values_, {1, 2, 64, 16});
    args_.key = FloatTensorView(values_, {1, 2, 64, 16});
    args_.value = FloatTensorView(values_, {1, 2, 64, 16});
  }
  ~SharedRequestTest() override {
    slice_.Release();
    memory_.Close();
  }

  absl::Status Fill(std::int64_t limit = kNoLimit) {
    return FillRequest(args_, CallPriority::kNormal, limit, &request_, &memory_, &slice_);
  }

  std::vector<float> FloatsAt(const v1::SharedMemorySlice& place) const {
    std::vector<float> floats(place.size_bytes() / sizeof(float));
    std::memcpy(floats.data(), slice_.data() + (place.offset() - slice_.offset()),
                place.size_bytes());
    return floats;
  }

  std::vector<float> values_ = std::vector<float>(2 * 64 * 16);
  AttentionArgs args_;
  SharedMemory memory_{
      grpc::CreateChannel("unix:/nobody/listens", grpc::InsecureChannelCredentials()), kMiB};
  SharedSlice slice_;
  v1::AttendRequest request_;
};

TEST_F(SharedRequestTest, LargeTensorsAndResultsGoThere) {
  args_.output.lse = true;                  // 512 bytes: stays in the message
  args_.key.strides = {2048, 1024, 1, 64};  // read across: what is there is dense
  const std::vector<float> sinks = {1, 2};
  args_.options.sinks = FloatTensorView(sinks, {2});
  ASSERT_TRUE(Fill().ok());
  ASSERT_TRUE(slice_.present());
  EXPECT_EQ(FloatsAt(request_.query().shared_memory()), values_);
  EXPECT_EQ(FloatsAt(request_.value().shared_memory()), values_);
  const std::vector<float> key = FloatsAt(request_.key().shared_memory());
  EXPECT_EQ(key[1], 64);
  EXPECT_EQ(key[16], 1);
  EXPECT_EQ(request_.query().shape_size(), 4);
  EXPECT_EQ(request_.options().sinks().data().size(), 8u);
  EXPECT_EQ(request_.output().output_target().size_bytes(), 8192u);
  EXPECT_FALSE(request_.output().has_lse_target());
  EXPECT_EQ(slice_.size_bytes(), 4 * 8192u);
  SetHandle("handle", &request_);
  EXPECT_EQ(request_.value().shared_memory().handle(), "handle");
  EXPECT_EQ(request_.output().output_target().handle(), "handle");
  EXPECT_FALSE(request_.has_boolean_mask() || request_.has_additive_mask() ||
               request_.options().has_alibi_slopes() || request_.options().has_block_mask());
}

TEST_F(SharedRequestTest, SmallRequestsAndThoseWithoutRoomGoInTheMessage) {
  args_.query = FloatTensorView(std::span(values_).first(16), {1, 1, 1, 16});
  args_.key = args_.value = args_.query;
  ASSERT_TRUE(Fill().ok());
  EXPECT_FALSE(slice_.present());
  EXPECT_EQ(request_.query().data().size(), 64u);

  const absl::StatusOr<SharedSlice> all = memory_.Take(kMiB);
  ASSERT_TRUE(all.ok() && all->present());
  args_.query = args_.key = args_.value = FloatTensorView(values_, {1, 2, 64, 16});
  request_.Clear();
  ASSERT_TRUE(Fill().ok());
  EXPECT_FALSE(slice_.present());
  EXPECT_EQ(request_.query().data().size(), 8192u);
  request_.Clear();
  EXPECT_EQ(Fill(8192).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SharedRequestTest, SizesThatNoMemoryHasAreRefusedAsEver) {
  args_.query.shape = {1, 1, std::int64_t{1} << 50, 1 << 9};  // 2^61 bytes, eight of which wrap
  args_.query.strides = {0, 0, 0, 0};
  args_.key = args_.value = args_.query;
  args_.output.weights = true;
  EXPECT_EQ(Fill().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(slice_.present());
}

TEST_F(SharedRequestTest, MovesIntoAnotherSliceAndThenIntoTheMessage) {
  ASSERT_TRUE(Fill().ok());
  const std::uint64_t first = slice_.offset();
  slice_.Retire();
  ASSERT_TRUE(MoveParts(memory_, kNoLimit, &slice_, &request_).ok());
  EXPECT_NE(slice_.offset(), first);
  EXPECT_EQ(FloatsAt(request_.query().shared_memory()), values_);
  EXPECT_EQ(request_.output().output_target().offset(), slice_.offset() + 3 * 8192);

  const absl::StatusOr<SharedSlice> rest = memory_.Take(kMiB - 2 * 4 * 8192);
  ASSERT_TRUE(rest.ok() && rest->present());
  EXPECT_EQ(MoveParts(memory_, 3 * 8192, &slice_, &request_).code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(slice_.present());
  ASSERT_TRUE(MoveParts(memory_, 4 * 8192, &slice_, &request_).ok());
  EXPECT_FALSE(slice_.present());
  EXPECT_EQ(std::memcmp(request_.key().data().data(), values_.data(), 8192), 0);
  EXPECT_FALSE(request_.output().has_output_target());
}

TEST_F(SharedRequestTest, ReadsResultsOnlyFromTheSlice) {
  ASSERT_TRUE(Fill().ok());
  v1::AttendResponse response;
  v1::Tensor& output = *response.mutable_output();
  output.set_dtype(v1::DATA_TYPE_FLOAT32);
  for (const int size : {1, 2, 64, 16}) output.add_shape(size);
  *output.mutable_shared_memory() = request_.query().shared_memory();
  const absl::StatusOr<AttendResult> result = ToResult(response, slice_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output.ToFloats(), values_);
  for (const std::uint64_t offset :
       {slice_.offset() + slice_.size_bytes() - 1, slice_.offset() - 1, ~std::uint64_t{0}}) {
    output.mutable_shared_memory()->set_offset(offset);
    EXPECT_EQ(ToResult(response, slice_).status().code(), absl::StatusCode::kInternal) << offset;
  }
  EXPECT_THAT(std::string(ToResult(response).status().message()), HasSubstr("shared_memory"));
}

TEST(ResultBytesTest, AgreesWithWhatAServerAnswers) {
  const std::vector<float> values(4096);
  AttentionArgs args;
  args.output = {
      .dtype = DType::kBFloat16, .lse = true, .weights = true, .scores = ScoreStage::kBiased};
  const auto expect_agreement = [&args] {
    const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Create(args);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const auto bytes = [](const Dims& shape, std::int64_t element) {
      return TensorView::Dense(DType::kFloat32, shape, nullptr).num_elements() * element;
    };
    const ResultBytes sizes = ResultBytesOf(args);
    EXPECT_EQ(sizes.output, bytes(problem->output_shape(), 2));
    EXPECT_EQ(sizes.lse, bytes(problem->lse_shape(), 4));
    EXPECT_EQ(sizes.weights, bytes(problem->score_shape(), 4));
    EXPECT_EQ(sizes.scores, bytes(problem->score_shape(), 4));
  };
  const auto view = [&values](Dims shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return FloatTensorView(std::span(values).first(static_cast<std::size_t>(count)), shape);
  };
  args.query = view({2, 6, 5, 8});
  args.key = view({2, 3, 7, 8});
  args.value = view({2, 3, 7, 4});
  expect_agreement();
  args.layout = Layout::kBatchLengthHeads;
  args.query = view({2, 5, 6, 8});
  args.key = view({1, 7, 3, 8});
  args.value = view({1, 7, 3, 4});
  expect_agreement();
  args.layout = Layout::kPacked;
  args.query_lengths = {1, 4};
  args.kv_lengths = {5, 2};
  args.query = view({5, 6, 8});
  args.key = view({7, 3, 8});
  args.value = view({7, 3, 4});
  expect_agreement();
  args.query.shape = {5, 6};
  EXPECT_EQ(ResultBytesOf(args).output, 0);
}

// A region that has worn out is replaced, and nothing of it stays behind.
TEST(SharedMemoryTest, ReplacesARegionThatIsRetiredInTheMain) {
  const auto channel =
      grpc::CreateChannel("unix:/nobody/listens", grpc::InsecureChannelCredentials());
  SharedMemory memory(channel, kMiB);
  absl::StatusOr<SharedSlice> first = memory.Take(kMiB / 2);
  ASSERT_TRUE(first.ok() && first->present());
  const std::byte* const data = first->data();
  first->Retire();
  first->Release();
  absl::StatusOr<SharedSlice> second = memory.Take(kMiB / 2);
  ASSERT_TRUE(second.ok() && second->present());
  EXPECT_EQ(second->data(), data + kMiB / 2) << "the retired half was given out again";
  absl::StatusOr<SharedSlice> third = memory.Take(kMiB);
  ASSERT_TRUE(third.ok() && third->present()) << "the region was not replaced";
  std::memset(second->data(), 1, kMiB / 2);  // still there
  EXPECT_FALSE(memory.Take(1)->present()) << "nothing of it is retired: it is full";
  second->Release();
  third->Release();
  memory.Close();
}

TEST(SharedMemoryTest, SaysThatTheHostHasNoRoom) {
  const auto channel =
      grpc::CreateChannel("unix:/nobody/listens", grpc::InsecureChannelCredentials());
  SharedMemory memory(channel, std::uint64_t{1} << 46);
  const absl::StatusOr<SharedSlice> slice = memory.Take(1);
  EXPECT_EQ(slice.status().code(), absl::StatusCode::kResourceExhausted) << slice.status();
  EXPECT_THAT(std::string(slice.status().message()), HasSubstr("shared_memory_bytes"));
  memory.Close();
}

}  // namespace
}  // namespace attend::client_internal

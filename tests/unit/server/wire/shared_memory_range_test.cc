// Tensors and results in shared memory that somebody changes between any two steps.
#include "server/wire/shared_memory_range.h"

#include <cstddef>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer_pool.h"
#include "core/base/status.h"
#include "server/wire/attend_response.h"
#include "server/wire/received_request.h"
#include "tests/support/requests.h"
#include "tests/support/shared_memory_object.h"
#include "tests/unit/server/schedule/fake_clock.h"

namespace attend {
namespace {

std::string FieldOf(const absl::Status& status) {
  const auto violation = GetFieldViolation(status);
  return violation.has_value() ? violation->field : std::string(status.message());
}

class SharedMemoryRangeTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1 << 16;

  SharedMemoryRangeTest() : handle_(*registry_.Register(object_.name(), kBytes)) {
    request_ = testing::RandomRequest({.query_len = 8, .kv_len = 8});
    *request_.mutable_boolean_mask() =
        testing::BoolTensor({8, 8}, std::vector<int>(std::size_t{64}, 1));
  }

  // Puts the tensor's elements there.
  void Move(v1::Tensor& tensor, std::uint64_t offset) {
    const std::string data = tensor.data();
    const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
    object_.Write(offset, {bytes, bytes + data.size()});
    Claim(tensor, offset, data.size());
  }

  void Claim(v1::Tensor& tensor, std::uint64_t offset, std::uint64_t size) {
    tensor.mutable_shared_memory()->set_handle(handle_);
    tensor.mutable_shared_memory()->set_offset(offset);
    tensor.mutable_shared_memory()->set_size_bytes(size);
  }

  absl::StatusOr<AttentionArgs> Args(ReceivedRequest& received) {
    const grpc::Slice slice(request_.SerializeAsString());
    grpc::ByteBuffer message(&slice, 1);
    absl::Status status = received.Read(message, MessageType::kAttendRequest, {});
    if (!status.ok()) return status;
    return received.Args({}, access_);
  }

  FakeClock clock_;
  testing::SharedMemoryObject object_{kBytes};
  SharedMemoryRegistry registry_{{}, clock_};
  const std::string handle_;
  const SharedMemoryAccess access_{.registry = &registry_, .over_unix_socket = true};
  BufferPool pool_;
  v1::AttendRequest request_;
};

TEST_F(SharedMemoryRangeTest, SizesThatOverflowTogetherTakeNoMemory) {  // B16
  testing::SharedMemoryObject sparse(std::size_t{1} << 62);
  const std::string handle = *registry_.Register(sparse.name(), std::uint64_t{1} << 62);
  const auto claim = [&](v1::Tensor& tensor, std::uint64_t size) {
    Claim(tensor, 0, size);
    tensor.mutable_shared_memory()->set_handle(handle);
  };
  // Rounded up to 64 each, these add up to 2^64 + 64.
  claim(*request_.mutable_query(), std::uint64_t{1} << 62);
  claim(*request_.mutable_key(), std::uint64_t{1} << 62);
  claim(*request_.mutable_value(), std::uint64_t{1} << 62);
  claim(*request_.mutable_additive_mask(), (std::uint64_t{1} << 62) - 4096);
  claim(*request_.mutable_boolean_mask(), 4096);
  claim(*request_.mutable_options()->mutable_sinks(), 64);
  ReceivedRequest received(pool_);
  const absl::Status status = Args(received).status();
  EXPECT_EQ(FieldOf(status), "query.shared_memory.size_bytes");
  EXPECT_EQ(pool_.lent_bytes(), 0);
}

TEST_F(SharedMemoryRangeTest, ShapesThatOverflowTogetherTakeNoMemory) {
  constexpr std::int64_t kSide = std::int64_t{1} << 20;
  testing::SharedMemoryObject sparse(std::size_t{1} << 62);
  const std::string handle = *registry_.Register(sparse.name(), std::uint64_t{1} << 62);
  for (v1::Tensor* tensor :
       {request_.mutable_query(), request_.mutable_key(), request_.mutable_value()}) {
    tensor->clear_shape();
    for (const std::int64_t size : {std::int64_t{1}, kSide, kSide, kSide}) tensor->add_shape(size);
    Claim(*tensor, 0, std::uint64_t{1} << 62);
    tensor->mutable_shared_memory()->set_handle(handle);
  }
  ReceivedRequest received(pool_);
  EXPECT_EQ(Args(received).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool_.lent_bytes(), 0);
}

TEST_F(SharedMemoryRangeTest, WhatWasCheckedIsNotReadAgain) {
  Move(*request_.mutable_boolean_mask(), 0);
  ReceivedRequest received(pool_);
  const absl::StatusOr<AttentionArgs> args = Args(received);
  ASSERT_TRUE(args.ok()) << args.status();
  object_.Write(0, std::vector<std::byte>(64, std::byte{0xff}));
  for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(*args->boolean_mask->at(i), std::byte{1});
}

TEST_F(SharedMemoryRangeTest, ARegionThatIsCutOffAfterItsSizesWereCheckedIsRefused) {  // B18
  Move(*request_.mutable_value(), 0);
  ReceivedRequest received(pool_);
  ASSERT_TRUE(Args(received).ok());
  object_.Resize(10);
  EXPECT_EQ(FieldOf(received.Gather()), "value.shared_memory");
}

TEST_F(SharedMemoryRangeTest, DataThatCameBeforeItCountsNoMore) {
  v1::Tensor place;
  Claim(place, 0, request_.key().data().size());
  object_.Write(0, std::vector<std::byte>(request_.key().data().size(), std::byte{0x3f}));
  // Two kinds of storage in one tensor: protobuf's oneof keeps the later one.
  v1::AttendRequest rest;
  *rest.mutable_key() = place;
  std::string bytes = request_.key().SerializeAsString() + place.SerializeAsString();
  ASSERT_TRUE(request_.mutable_key()->ParseFromString(bytes));
  ASSERT_TRUE(request_.key().has_shared_memory());
  ReceivedRequest received(pool_);
  const absl::StatusOr<AttentionArgs> args = Args(received);
  ASSERT_TRUE(args.ok()) << args.status();
  ASSERT_TRUE(received.Gather().ok());
  EXPECT_EQ(*args->key.at(0), std::byte{0x3f});
}

TEST_F(SharedMemoryRangeTest, RefusesWhatItDoesNotKnow) {
  Move(*request_.mutable_key(), 0);
  v1::SharedMemorySlice& slice = *request_.mutable_key()->mutable_shared_memory();
  slice.GetReflection()->MutableUnknownFields(&slice)->AddVarint(99, 1);
  ReceivedRequest received(pool_);
  EXPECT_EQ(Args(received).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(SharedMemoryRangeTest, TargetsMayTouchAndNotOverlap) {
  constexpr std::uint64_t kOutput = 2 * 4 * 8 * 6 * sizeof(float);
  constexpr std::uint64_t kLse = 2 * 4 * 8 * sizeof(float);
  request_.mutable_output()->set_lse(true);
  ReceivedRequest received(pool_);
  const absl::StatusOr<AttentionArgs> args = Args(received);
  ASSERT_TRUE(args.ok()) << args.status();
  const AttentionProblem problem = *AttentionProblem::Create(*args);
  testing::SharedMemoryObject other(kBytes);
  const std::string other_handle = *registry_.Register(other.name(), kBytes);
  const auto find = [&](std::uint64_t output_at, std::uint64_t lse_at,
                        const std::string& lse_handle) {
    v1::OutputOptions output = request_.output();
    output.mutable_output_target()->set_handle(handle_);
    output.mutable_output_target()->set_offset(output_at);
    output.mutable_output_target()->set_size_bytes(kOutput);
    output.mutable_lse_target()->set_handle(lse_handle);
    output.mutable_lse_target()->set_offset(lse_at);
    output.mutable_lse_target()->set_size_bytes(kLse);
    return FindTargets(output, problem, access_).status();
  };
  EXPECT_TRUE(find(0, kOutput, handle_).ok());
  EXPECT_TRUE(find(kLse, 0, handle_).ok());
  EXPECT_TRUE(find(0, 0, other_handle).ok());
  for (const auto& [output_at, lse_at] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 0}, {0, kOutput - 1}, {kLse - 1, 0}, {100, 200}}) {
    const absl::Status status = find(output_at, lse_at, handle_);
    EXPECT_EQ(FieldOf(status), "output.lse_target") << output_at << " " << lse_at;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("overlaps output.output_target"));
  }
}

TEST_F(SharedMemoryRangeTest, ATargetThatIsCutOffWhileItsResultIsComputedIsRefused) {  // B18
  ReceivedRequest received(pool_);
  const std::uint64_t bytes = 2 * 4 * 8 * 6 * sizeof(float);
  v1::SharedMemorySlice& slice = *request_.mutable_output()->mutable_output_target();
  slice.set_handle(handle_);
  slice.set_size_bytes(bytes);
  const absl::StatusOr<AttentionArgs> args = Args(received);
  ASSERT_TRUE(args.ok()) << args.status();
  ASSERT_TRUE(received.Gather().ok());
  const AttentionProblem problem = *AttentionProblem::Create(*args);
  absl::StatusOr<ResultTargets> targets = FindTargets(request_.output(), problem, access_);
  ASSERT_TRUE(targets.ok()) << targets.status();
  ResponseMessage response;
  response.SetTargets(*std::move(targets), request_.output());
  ASSERT_TRUE(response.Allocate(problem, pool_, 0).ok());
  EXPECT_TRUE(response.WriteTargets().ok());
  object_.Resize(10);
  EXPECT_EQ(FieldOf(response.WriteTargets()), "output.output_target");
}

}  // namespace
}  // namespace attend

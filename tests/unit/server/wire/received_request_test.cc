#include "server/wire/received_request.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "tests/fuzz/wire_properties.h"
#include "tests/unit/server/wire/slices.h"

namespace attend {
namespace {

using ::testing::HasSubstr;
using testing::WireFaultOf;

void Fill(v1::Tensor& tensor, const std::vector<std::int64_t>& shape, char first) {
  tensor.set_dtype(v1::DATA_TYPE_FLOAT32);
  std::size_t bytes = 4;
  for (const std::int64_t size : shape) {
    tensor.add_shape(size);
    bytes *= static_cast<std::size_t>(size);
  }
  std::string data(bytes, first);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(first + i);
  tensor.set_data(data);
}

// Every tensor that there is, and something of everything else.
v1::AttendRequest FullRequest(std::int64_t length = 3) {
  v1::AttendRequest request;
  Fill(*request.mutable_query(), {1, 2, length, 4}, 'a');
  Fill(*request.mutable_key(), {1, 1, 5, 4}, 'b');
  Fill(*request.mutable_value(), {1, 1, 5, 6}, 'c');
  Fill(*request.mutable_boolean_mask(), {1, 5}, 'd');
  Fill(*request.mutable_additive_mask(), {length, 5}, 'e');
  v1::AttentionOptions& options = *request.mutable_options();
  options.set_scale(0.5f);
  options.set_causal(true);
  options.add_query_offsets(-1);
  Fill(*options.mutable_alibi_slopes(), {2}, 'f');
  Fill(*options.mutable_sinks(), {2}, 'g');
  options.mutable_block_mask()->set_query_block_size(64);
  Fill(*options.mutable_block_mask()->mutable_blocks(), {1, 1}, 'h');
  request.add_kv_lengths(5);
  request.mutable_output()->set_lse(true);
  request.mutable_timeout()->set_seconds(3);
  return request;
}

absl::Status Read(const std::string& bytes, MessageType type = MessageType::kAttendRequest,
                  const AttentionLimits& limits = {}) {
  BufferPool pool;
  ReceivedRequest received(pool);
  grpc::ByteBuffer buffer = BufferOf(bytes, 0);
  return received.Read(buffer, type, limits);
}

void ExpectRefusal(const absl::Status& status, const std::string& field, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  ASSERT_TRUE(GetFieldViolation(status).has_value()) << status;
  EXPECT_EQ(GetFieldViolation(status)->field, field);
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(ReceivedRequestTest, ReadsWhatProtobufWroteInPiecesOfEverySize) {
  v1::AttendStreamRequest stream_request;
  stream_request.set_id(std::numeric_limits<std::uint64_t>::max());
  *stream_request.mutable_attend() = FullRequest();
  const std::string unary = stream_request.attend().SerializeAsString();
  const std::string streamed = stream_request.SerializeAsString();
  for (std::size_t piece = 0; piece <= streamed.size(); ++piece) {
    EXPECT_EQ(WireFaultOf(unary, MessageType::kAttendRequest, piece), "") << piece;
    EXPECT_EQ(WireFaultOf(streamed, MessageType::kAttendStreamRequest, piece), "") << piece;
  }
}

TEST(ReceivedRequestTest, ReadsLargeMessagesInManyPieces) {
  for (const std::int64_t length : {900, 2000, 40'000}) {
    const std::string bytes = FullRequest(length).SerializeAsString();
    for (const std::size_t piece : {std::size_t{0}, std::size_t{997}, std::size_t{8192}}) {
      EXPECT_EQ(WireFaultOf(bytes, MessageType::kAttendRequest, piece), "") << length;
    }
  }
}

// The short form of the fuzz target.
TEST(ReceivedRequestTest, ReadsRandomMessagesAsProtobufDoes) {
  std::mt19937 random(20);
  int taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::array<std::uint8_t, 512> choices;
    for (std::uint8_t& choice : choices) choice = static_cast<std::uint8_t>(random());
    testing::ByteSource bytes(choices);
    const auto type = static_cast<MessageType>(i % 2);
    const std::string message = testing::RandomMessage(bytes, type);
    ASSERT_EQ(WireFaultOf(message, type, random() % 20), "")
        << i << ": " << ::testing::PrintToString(message);
    if (Read(message, type).ok()) ++taken;
  }
  EXPECT_GT(taken, 5000) << "the messages are spoiled too often to test anything";
}

TEST(ReceivedRequestTest, CutsNoMessageShorterThanItIs) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(WireFaultOf(bytes.substr(0, size), MessageType::kAttendRequest, 5), "") << size;
  }
}

TEST(ReceivedRequestTest, SmallTensorsStayWhereTheyAre) {
  BufferPool pool;
  ReceivedRequest received(pool);
  const std::string bytes = FullRequest().SerializeAsString();
  grpc::ByteBuffer buffer = BufferOf(bytes, 0);
  ASSERT_TRUE(received.Read(buffer, MessageType::kAttendRequest, {}).ok());
  EXPECT_FALSE(buffer.Valid());
  v1::AttendRequest request = FullRequest();
  ASSERT_TRUE(received.Args({}, {}).ok());
  ASSERT_TRUE(received.Gather().ok());
  EXPECT_EQ(received.copied_bytes(), 0);
  EXPECT_EQ(pool.lent_bytes(), 0);
  EXPECT_EQ(received.message_bytes(), static_cast<std::int64_t>(bytes.size()));
  EXPECT_EQ(received.held_bytes(), received.message_bytes());
}

TEST(ReceivedRequestTest, LargeMessagesAreCopiedOnceAndLetGo) {
  BufferPool pool;
  ReceivedRequest received(pool);
  v1::AttendRequest request = FullRequest(3000);
  const std::string bytes = request.SerializeAsString();
  grpc::ByteBuffer buffer = BufferOf(bytes, 8192);
  ASSERT_TRUE(received.Read(buffer, MessageType::kAttendRequest, {}).ok());
  EXPECT_EQ(pool.lent_bytes(), 0);
  const absl::StatusOr<AttentionArgs> args = received.Args({}, {});
  ASSERT_TRUE(args.ok()) << args.status();
  // What is looked at before the request is admitted is there; the rest is not copied yet.
  EXPECT_EQ(received.copied_bytes(), 4 * (5 + 3000 * 5 + 2 + 2 + 1));
  EXPECT_EQ(std::memcmp(args->additive_mask->data, request.additive_mask().data().data(),
                        request.additive_mask().data().size()),
            0);
  ASSERT_TRUE(received.Gather().ok());
  EXPECT_EQ(received.copied_bytes(), 4 * (5 + 3000 * 5 + 2 + 2 + 1 + 2 * 3000 * 4 + 5 * 4 + 5 * 6));
  EXPECT_EQ(
      std::memcmp(args->query.data, request.query().data().data(), request.query().data().size()),
      0);
  for (const std::byte* data : {args->query.data, args->key.data, args->value.data}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
  }
  EXPECT_GE(received.held_bytes(), received.copied_bytes());
  EXPECT_GT(pool.lent_bytes(), 0);
  received.Release();
  EXPECT_EQ(pool.lent_bytes(), 0);
}

TEST(ReceivedRequestTest, HasNoMemoryWhileOthersHaveWhatThePoolLends) {
  BufferPool pool({.max_lent_bytes = 10 << 20});
  const PooledBuffer lent = pool.Acquire(9 << 20);
  ReceivedRequest received(pool);
  grpc::ByteBuffer buffer = BufferOf(FullRequest(30'000).SerializeAsString(), 0);
  ASSERT_TRUE(received.Read(buffer, MessageType::kAttendRequest, {}).ok());
  EXPECT_EQ(received.Args({}, {}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ReceivedRequestTest, RefusesWhatThePoolNeverLends) {
  BufferPool pool({.max_lent_bytes = 1000});
  ReceivedRequest received(pool);
  grpc::ByteBuffer buffer = BufferOf(FullRequest(3000).SerializeAsString(), 0);
  ASSERT_TRUE(received.Read(buffer, MessageType::kAttendRequest, {}).ok());
  EXPECT_EQ(received.Args({}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReceivedRequestTest, RefusesATensorThatOccursTwice) {
  const std::string bytes = FullRequest().SerializeAsString();
  v1::AttendRequest more;
  more.mutable_key()->add_shape(1);
  ExpectRefusal(Read(bytes + more.SerializeAsString()), "key", "occurs twice");
  more.Clear();
  more.mutable_options()->mutable_sinks();
  ExpectRefusal(Read(bytes + more.SerializeAsString()), "options.sinks", "occurs twice");
  more.Clear();
  more.mutable_options()->mutable_block_mask()->mutable_blocks();
  ExpectRefusal(Read(bytes + more.SerializeAsString()), "options.block_mask.blocks",
                "occurs twice");
}

TEST(ReceivedRequestTest, RefusesDataThatOccursTwice) {
  v1::Tensor tensor;
  tensor.set_data("abcd");
  const std::string twice = tensor.SerializeAsString() + tensor.SerializeAsString();
  const std::string query =
      absl::StrCat("\x52", std::string(1, static_cast<char>(twice.size())), twice);
  ExpectRefusal(Read(query), "query.data", "occurs twice");
}

TEST(ReceivedRequestTest, MergesOptionsAsProtobufDoes) {
  v1::AttendRequest more;
  more.mutable_options()->set_softcap(30);
  v1::AttendRequest request = FullRequest();
  const std::string bytes = request.SerializeAsString() + more.SerializeAsString();
  EXPECT_EQ(WireFaultOf(bytes, MessageType::kAttendRequest, 3), "");
  EXPECT_TRUE(Read(bytes).ok());
}

TEST(ReceivedRequestTest, TellsWhatIsWrongWithBytesThatAreNoMessage) {
  const std::string eleven(11, '\xff');
  ExpectRefusal(Read(eleven), "request", "has a tag that is too long at byte 5");
  ExpectRefusal(Read("\x0a\x7f"), "request", "ends inside a field at byte 2");
  ExpectRefusal(Read(absl::StrCat("\x10", eleven)), "request", "has a number that is too long");
  ExpectRefusal(Read("\x52\xff\xff\xff\xff\x08"), "request", "has a length that is too long");
  ExpectRefusal(Read("\x0b"), "request", "ends inside a group");
  ExpectRefusal(Read("\x0c"), "request", "ends a group that it did not begin");
  ExpectRefusal(Read("\x0f"), "request", "has a field of no wire type");
  ExpectRefusal(Read(std::string(1000, '\x0b')), "request", "ends inside a group");
  ExpectRefusal(Read(absl::StrCat(std::string(200, '\x0b'), std::string(200, '\x0c'))), "request",
                "protobuf cannot parse");
  ExpectRefusal(Read(std::string(1, '\0')), "request", "ends inside a field");
  ExpectRefusal(Read(eleven, MessageType::kAttendStreamRequest), "request",
                "is not an AttendStreamRequest");
}

TEST(ReceivedRequestTest, BoundsWhatProtobufUnfolds) {
  const AttentionLimits limits{.max_batch = 100};
  const std::int64_t bound = MaxSkeletonBytes(limits);
  EXPECT_EQ(bound, 65536 + 33 * 100);
  // Field 100 as numbers: each takes 3 bytes here, and 16 in protobuf's set of unknown fields.
  std::string unknown;
  while (unknown.size() + 3 <= kMaxRestBytes) unknown += "\xa0\x06\x01";
  EXPECT_TRUE(Read(unknown, MessageType::kAttendRequest, limits).ok());
  ExpectRefusal(Read(unknown + "\xa0\x06\x01", MessageType::kAttendRequest, limits), "request",
                "has more than 65536 bytes outside the data of its tensors and its lists");
  // Lengths one by one, then packed: what is listed leaves room for the rest.
  std::string listed;
  while (static_cast<std::int64_t>(listed.size() + unknown.size()) + 2 <= bound)
    listed += "\x18\x01";
  EXPECT_TRUE(Read(listed + unknown, MessageType::kAttendRequest, limits).ok());
  EXPECT_TRUE(Read(unknown + listed, MessageType::kAttendRequest, limits).ok());
  ExpectRefusal(Read(unknown + listed + listed.substr(0, 4), MessageType::kAttendRequest, limits),
                "request", "has more than 68836 bytes outside the data of its tensors; expected");
  v1::AttendRequest packed;
  for (int i = 0; i < 3000; ++i) packed.add_kv_lengths(1);
  EXPECT_TRUE(Read(unknown + packed.SerializeAsString(), MessageType::kAttendRequest, limits).ok());
  // A list's number with another wire type is no list to protobuf.
  std::string fixed;
  while (fixed.size() <= kMaxRestBytes) fixed += "\x1d\x01\x01\x01\x01";
  ExpectRefusal(Read(fixed, MessageType::kAttendRequest, limits), "request",
                "has more than 65536 bytes");
  // One length that says much.
  v1::AttendRequest request;
  request.mutable_query()->mutable_shared_memory()->set_handle(std::string(1 << 20, 'x'));
  ExpectRefusal(Read(request.SerializeAsString(), MessageType::kAttendRequest, limits), "request",
                "outside the data");
}

TEST(ReceivedRequestTest, TakesListsOfEveryItemInTheLongestEncoding) {
  const AttentionLimits limits{.max_batch = 10'000};
  v1::AttentionOptions options;
  std::string request;
  std::string offsets;
  for (int i = 0; i < limits.max_batch; ++i) {
    absl::StrAppend(&offsets, "\x28", std::string(9, '\xff'), "\x01");
    absl::StrAppend(&request, "\x18", std::string(9, '\x80'), std::string(1, '\0'));
    absl::StrAppend(&request, "\x20", std::string(9, '\x80'), std::string(1, '\0'));
  }
  options.ParseFromString(offsets);
  EXPECT_EQ(options.query_offsets_size(), 10'000);
  std::string length;
  for (std::size_t size = offsets.size(); size > 0; size >>= 7) {
    length.push_back(static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0)));
  }
  const std::string bytes = absl::StrCat(request, "\x0a", length, offsets);
  EXPECT_TRUE(Read(bytes, MessageType::kAttendRequest, limits).ok());
  EXPECT_EQ(WireFaultOf(bytes, MessageType::kAttendRequest, 1000), "");
}

TEST(ReceivedRequestTest, AnEmptyMessageIsARequestWithoutTensors) {
  BufferPool pool;
  for (grpc::ByteBuffer buffer : {grpc::ByteBuffer(), BufferOf("", 0)}) {
    ReceivedRequest received(pool);
    ASSERT_TRUE(received.Read(buffer, MessageType::kAttendRequest, {}).ok());
    ExpectRefusal(received.Args({}, {}).status(), "query", "is missing");
  }
}

}  // namespace
}  // namespace attend

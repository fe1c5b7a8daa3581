#include "tests/fuzz/wire_properties.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attend/v1/attention.pb.h"
#include "core/base/attention_problem.h"
#include "core/base/buffer_pool.h"
#include "server/wire/attend_request.h"
#include "server/wire/received_request.h"

namespace attend::testing {

namespace {

// The wire format, written with every freedom that it leaves.
class RandomWriter {
 public:
  explicit RandomWriter(ByteSource& bytes) : bytes_(bytes) {}

  // A varint, perhaps longer than it has to be.
  std::string Varint(std::uint64_t value, int max_bytes) {
    const int extra = bytes_.Chance(15) ? bytes_.Byte() % 4 : 0;
    std::string text;
    do {
      text.push_back(static_cast<char>((value & 0x7f) | 0x80));
      value >>= 7;
    } while (value != 0);
    for (int i = 0; i < extra && static_cast<int>(text.size()) < max_bytes; ++i) {
      text.push_back('\x80');
    }
    text.back() = static_cast<char>(text.back() & 0x7f);
    return text;
  }

  std::string Tag(int field, int type) {
    return Varint(static_cast<std::uint64_t>(field) << 3 | static_cast<unsigned>(type), 5);
  }

  std::string Delimited(int field, const std::string& content) {
    return absl::StrCat(Tag(field, 2), Varint(content.size(), 5), content);
  }

  std::string Number(int field) {
    const std::uint64_t value = bytes_.Pick<std::uint64_t>({1, 0, 2, 3, 4, 300, ~std::uint64_t{0}});
    return absl::StrCat(Tag(field, 0), Varint(value, 10));
  }

  std::string Bytes(std::size_t size) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text.push_back(static_cast<char>(bytes_.Byte()));
    return text;
  }

  // A field that may be of the message's type or not, of any wire type.
  std::string AnyField(int depth) {
    const int field = bytes_.Pick({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 1000, 0});
    switch (bytes_.Byte() % 5) {
      case 0:
        return Number(field);
      case 1:
        return absl::StrCat(Tag(field, 1), Bytes(8));
      case 2:
        return absl::StrCat(Tag(field, 5), Bytes(4));
      case 3:
        return Delimited(field, Bytes(bytes_.Byte() % 12));
      default:
        return absl::StrCat(Tag(field, 3), depth > 0 ? AnyField(depth - 1) : "", Tag(field, 4));
    }
  }

  bool Chance(int percent) { return bytes_.Chance(percent); }

  // The fields in any order, some left out, some strange ones among them.
  std::string Shuffled(std::vector<std::string> fields) {
    std::string text;
    while (!fields.empty()) {
      const std::size_t next = bytes_.Byte() % fields.size();
      if (!bytes_.Chance(10)) text += fields[next];
      fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(next));
      if (bytes_.Chance(4)) text += AnyField(3);
    }
    return text;
  }

 private:
  ByteSource& bytes_;
};

std::string RandomTensorMessage(RandomWriter& writer, ByteSource& bytes) {
  const std::uint8_t length = bytes.Byte() % 4;
  std::string shape;
  for (std::uint8_t i = 0; i < 3; ++i) shape += writer.Varint(i == 2 ? length : 1, 10);
  std::vector<std::string> fields = {
      writer.Delimited(v1::Tensor::kDataFieldNumber, writer.Bytes(4u * length)),
      absl::StrCat(writer.Tag(v1::Tensor::kDtypeFieldNumber, 0),
                   writer.Varint(v1::DATA_TYPE_FLOAT32, 10)),
      writer.Delimited(v1::Tensor::kShapeFieldNumber, shape)};
  if (bytes.Chance(5)) {
    fields.push_back(writer.Delimited(v1::Tensor::kSharedMemoryFieldNumber, ""));
  }
  if (bytes.Chance(3)) fields.push_back(fields.front());
  return writer.Shuffled(std::move(fields));
}

std::string RandomOptionsMessage(RandomWriter& writer, ByteSource& bytes) {
  using Options = v1::AttentionOptions;
  std::vector<std::string> fields = {writer.Number(Options::kCausalFieldNumber)};
  for (const int field : {Options::kAlibiSlopesFieldNumber, Options::kSinksFieldNumber}) {
    if (bytes.Chance(50)) {
      fields.push_back(writer.Delimited(field, RandomTensorMessage(writer, bytes)));
    }
  }
  if (bytes.Chance(50)) {
    const std::string blocks =
        writer.Delimited(v1::BlockMask::kBlocksFieldNumber, RandomTensorMessage(writer, bytes));
    fields.push_back(writer.Delimited(
        Options::kBlockMaskFieldNumber,
        writer.Shuffled({blocks, writer.Number(v1::BlockMask::kQueryBlockSizeFieldNumber)})));
  }
  return writer.Shuffled(std::move(fields));
}

std::string RandomRequestMessage(RandomWriter& writer, ByteSource& bytes) {
  using Request = v1::AttendRequest;
  std::vector<std::string> fields;
  for (const int field :
       {Request::kQueryFieldNumber, Request::kKeyFieldNumber, Request::kValueFieldNumber}) {
    fields.push_back(writer.Delimited(field, RandomTensorMessage(writer, bytes)));
  }
  for (const int field : {Request::kBooleanMaskFieldNumber, Request::kAdditiveMaskFieldNumber}) {
    if (bytes.Chance(40)) {
      fields.push_back(writer.Delimited(field, RandomTensorMessage(writer, bytes)));
    }
  }
  // Protobuf merges what occurs twice.
  for (int i = 0; i < 2; ++i) {
    if (bytes.Chance(40)) {
      fields.push_back(
          writer.Delimited(Request::kOptionsFieldNumber, RandomOptionsMessage(writer, bytes)));
    }
  }
  if (bytes.Chance(40)) fields.push_back(writer.Number(Request::kKvLengthsFieldNumber));
  if (bytes.Chance(3)) fields.push_back(fields[bytes.Byte() % fields.size()]);
  return writer.Shuffled(std::move(fields));
}

std::vector<grpc::Slice> Pieces(const std::string& message, std::size_t piece_bytes) {
  const std::size_t step =
      piece_bytes == 0 ? std::max<std::size_t>(1, message.size()) : piece_bytes;
  std::vector<grpc::Slice> pieces;
  for (std::size_t at = 0; at < message.size(); at += step) {
    pieces.emplace_back(message.data() + at, std::min(step, message.size() - at));
    if (pieces.size() % 3 == 0) pieces.emplace_back();  // pieces may be empty
  }
  return pieces;
}

std::vector<TensorView> Views(const AttentionArgs& args) {
  std::vector<TensorView> views = {args.query, args.key, args.value};
  for (const auto& view :
       {args.boolean_mask, args.additive_mask, args.options.alibi_slopes, args.options.sinks}) {
    if (view.has_value()) views.push_back(*view);
  }
  if (args.options.block_mask.has_value()) views.push_back(args.options.block_mask->blocks);
  return views;
}

std::string Difference(const AttentionArgs& ours, const AttentionArgs& theirs) {
  const std::vector<TensorView> our_views = Views(ours);
  const std::vector<TensorView> their_views = Views(theirs);
  if (our_views.size() != their_views.size()) return "another number of tensors";
  for (std::size_t i = 0; i < our_views.size(); ++i) {
    const TensorView& a = our_views[i];
    const TensorView& b = their_views[i];
    if (a.dtype != b.dtype || a.shape != b.shape) return absl::StrCat("tensor ", i, " differs");
    const auto bytes = static_cast<std::size_t>(a.num_elements()) * SizeOf(a.dtype);
    if (bytes > 0 && std::memcmp(a.data, b.data, bytes) != 0) {
      return absl::StrCat("the bytes of tensor ", i, " differ");
    }
  }
  return "";
}

// The message that protobuf makes of `message`, or false.
bool Parse(const std::string& message, MessageType type, v1::AttendRequest& request,
           v1::AttendStreamRequest& stream_request) {
  if (type == MessageType::kAttendRequest) return request.ParseFromString(message);
  if (!stream_request.ParseFromString(message)) return false;
  request = stream_request.attend();
  return true;
}

std::string RefusalFault(const absl::Status& status, bool parsed) {
  if (status.code() != absl::StatusCode::kInvalidArgument) return "refused with another code";
  if (parsed && !absl::StrContains(status.message(), "occurs twice")) {
    return absl::StrCat("refused what protobuf takes: ", status.message());
  }
  return "";
}

}  // namespace

std::string RandomMessage(ByteSource& bytes, MessageType type) {
  RandomWriter writer(bytes);
  std::string message = RandomRequestMessage(writer, bytes);
  if (type == MessageType::kAttendStreamRequest) {
    std::vector<std::string> fields = {
        writer.Number(v1::AttendStreamRequest::kIdFieldNumber),
        writer.Delimited(v1::AttendStreamRequest::kAttendFieldNumber, message)};
    if (bytes.Chance(10)) {
      fields.push_back(writer.Delimited(v1::AttendStreamRequest::kCancelFieldNumber, ""));
    }
    message = writer.Shuffled(std::move(fields));
  }
  if (bytes.Chance(20) && !message.empty()) {
    message[(bytes.Byte() * 256u + bytes.Byte()) % message.size()] =
        static_cast<char>(bytes.Byte());
  }
  if (bytes.Chance(5)) message.resize((bytes.Byte() * 256u + bytes.Byte()) % (message.size() + 1));
  return message;
}

std::string WireFaultOf(const std::string& message, MessageType type, std::size_t piece_bytes) {
  v1::AttendRequest request;
  v1::AttendStreamRequest stream_request;
  const bool parsed = Parse(message, type, request, stream_request);

  BufferPool pool;
  ReceivedRequest received(pool);
  const std::vector<grpc::Slice> pieces = Pieces(message, piece_bytes);
  grpc::ByteBuffer buffer(pieces.data(), pieces.size());
  const absl::Status status = received.Read(buffer, type, {});
  if (!status.ok()) return RefusalFault(status, parsed);
  if (!parsed) return "took what protobuf refuses";
  if (type == MessageType::kAttendStreamRequest &&
      (received.stream_request().id() != stream_request.id() ||
       received.stream_request().kind_case() != stream_request.kind_case())) {
    return "another id or kind";
  }
  const absl::StatusOr<AttentionArgs> theirs = ToAttentionArgs(request, {});
  const absl::StatusOr<AttentionArgs> ours = received.Args({}, {});
  if (ours.status() != theirs.status()) {
    return absl::StrCat("ours: ", ours.status().message(), ", theirs: ", theirs.status().message());
  }
  if (!ours.ok()) return "";
  if (const absl::Status gathered = received.Gather(); !gathered.ok()) {
    return absl::StrCat("gather: ", gathered.message());
  }
  return Difference(*ours, *theirs);
}

}  // namespace attend::testing

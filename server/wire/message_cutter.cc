#include "server/wire/message_cutter.h"

#include <algorithm>
#include <climits>
#include <google/protobuf/wire_format_lite.h>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "attend/v1/attention.pb.h"
#include "core/base/status.h"
#include "server/wire/piece_reader.h"

namespace attend {

namespace {

using google::protobuf::internal::WireFormatLite;

// What is looked for in the messages of one type. Everything else is copied as it is.
struct Node;
struct Child {
  int field;
  const Node* node;      // of the message in the field; null: the elements of `tensor`, or a list
  RequestTensor tensor;  // where the field holds one
};
struct Node {
  std::span<const Child> children;
};

constexpr RequestTensor kNoTensor = static_cast<RequestTensor>(kNumRequestTensors);

constexpr Child List(int field) { return {field, nullptr, kNoTensor}; }

// One node for each tensor, so that a path says whose elements they are.
template <RequestTensor tensor>
constexpr Child kElements[] = {{v1::Tensor::kDataFieldNumber, nullptr, tensor}};
template <RequestTensor tensor>
constexpr Node kTensor = {kElements<tensor>};

template <RequestTensor tensor>
constexpr Child TensorField(int field) {
  return {field, &kTensor<tensor>, tensor};
}

constexpr Child kBlockMaskFields[] = {
    TensorField<RequestTensor::kBlocks>(v1::BlockMask::kBlocksFieldNumber),
};
constexpr Node kBlockMask = {kBlockMaskFields};

constexpr Child kOptionsFields[] = {
    TensorField<RequestTensor::kAlibiSlopes>(v1::AttentionOptions::kAlibiSlopesFieldNumber),
    TensorField<RequestTensor::kSinks>(v1::AttentionOptions::kSinksFieldNumber),
    {v1::AttentionOptions::kBlockMaskFieldNumber, &kBlockMask, kNoTensor},
    List(v1::AttentionOptions::kQueryOffsetsFieldNumber),
};
constexpr Node kOptions = {kOptionsFields};

constexpr Child kRequestFields[] = {
    {v1::AttendRequest::kOptionsFieldNumber, &kOptions, kNoTensor},
    List(v1::AttendRequest::kQueryLengthsFieldNumber),
    List(v1::AttendRequest::kKvLengthsFieldNumber),
    TensorField<RequestTensor::kBooleanMask>(v1::AttendRequest::kBooleanMaskFieldNumber),
    TensorField<RequestTensor::kAdditiveMask>(v1::AttendRequest::kAdditiveMaskFieldNumber),
    TensorField<RequestTensor::kQuery>(v1::AttendRequest::kQueryFieldNumber),
    TensorField<RequestTensor::kKey>(v1::AttendRequest::kKeyFieldNumber),
    TensorField<RequestTensor::kValue>(v1::AttendRequest::kValueFieldNumber),
};
constexpr Node kRequest = {kRequestFields};

constexpr Child kStreamRequestFields[] = {
    {v1::AttendStreamRequest::kAttendFieldNumber, &kRequest, kNoTensor},
};
constexpr Node kStreamRequest = {kStreamRequestFields};

// A length in the skeleton, which is known only after what it counts: always this long, as
// protobuf allows.
constexpr std::size_t kLengthBytes = 5;

constexpr std::size_t kUsualSkeletonBytes = 256;

constexpr std::size_t kMaxTagBytes = 5;
constexpr std::size_t kMaxVarintBytes = 10;
// What the generated parser takes for a length at most.
constexpr std::uint32_t kMaxLength = INT_MAX - 16;

class Cutter {
 public:
  Cutter(std::span<const grpc::Slice> pieces, MessageType type, std::size_t max_skeleton_bytes,
         CutMessage& to)
      : pieces_(pieces),
        reader_(pieces),
        type_(type),
        max_skeleton_bytes_(max_skeleton_bytes),
        to_(to) {}

  absl::Status Run() {
    std::size_t size = 0;
    for (const grpc::Slice& piece : pieces_) size += piece.size();
    Open(type_ == MessageType::kAttendRequest ? &kRequest : &kStreamRequest, size);
    to_.skeleton.reserve(std::min(size, kUsualSkeletonBytes));
    absl::Status status;
    while (!open_.empty() && status.ok()) {
      status = left() == 0 ? Close() : Field();
    }
    return status;
  }

 private:
  // A message whose fields are being read.
  struct Message {
    const Node* node;
    std::size_t end;     // position in the received message
    std::size_t body;    // position in the skeleton, behind the length
    std::size_t groups;  // open ones: inside, nothing is ours
  };

  Message& message() { return open_.back(); }
  // Bytes of the innermost message.
  std::size_t left() { return message().end - reader_.position(); }

  void Open(const Node* node, std::size_t size) {
    open_.push_back({node, reader_.position() + size, to_.skeleton.size(), 0});
  }

  absl::Status Close() {
    const Message closed = message();
    if (closed.groups > 0) return Malformed("ends inside a group");
    open_.pop_back();
    if (open_.empty()) return absl::OkStatus();
    std::size_t length = to_.skeleton.size() - closed.body;
    for (std::size_t i = 0; i < kLengthBytes; ++i, length >>= 7) {
      const std::size_t more = i + 1 < kLengthBytes ? 0x80 : 0;
      to_.skeleton[closed.body - kLengthBytes + i] = static_cast<char>((length & 0x7f) | more);
    }
    return absl::OkStatus();
  }

  absl::Status Field() {
    const std::size_t begin = to_.skeleton.size();
    std::uint32_t tag = 0;
    if (absl::Status status = ReadTag(tag); !status.ok()) return status;
    in_list_ = IsList(tag);
    absl::Status status = Value(tag);
    if (in_list_) listed_bytes_ += to_.skeleton.size() - begin;
    in_list_ = false;
    return status;
  }

  // Whether protobuf will find numbers of a list there, packed or one by one.
  bool IsList(std::uint32_t tag) {
    const WireFormatLite::WireType type = WireFormatLite::GetTagWireType(tag);
    if (type != WireFormatLite::WIRETYPE_VARINT &&
        type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      return false;
    }
    const Child* child = Find(WireFormatLite::GetTagFieldNumber(tag));
    return child != nullptr && child->node == nullptr && child->tensor == kNoTensor;
  }

  absl::Status Value(std::uint32_t tag) {
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        return CopyVarint();
      case WireFormatLite::WIRETYPE_FIXED64:
        return Copy(8);
      case WireFormatLite::WIRETYPE_FIXED32:
        return Copy(4);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return LengthDelimited(WireFormatLite::GetTagFieldNumber(tag));
      case WireFormatLite::WIRETYPE_START_GROUP:
        ++message().groups;
        return absl::OkStatus();
      case WireFormatLite::WIRETYPE_END_GROUP:
        if (message().groups == 0) return Malformed("ends a group that it did not begin");
        --message().groups;
        return absl::OkStatus();
      default:
        return Malformed("has a field of no wire type");
    }
  }

  absl::Status LengthDelimited(int field) {
    const std::size_t before = to_.skeleton.size();
    std::uint32_t length = 0;
    if (absl::Status status = ReadLength(length); !status.ok()) return status;
    if (length > left()) return Malformed("ends inside a field");
    const Child* child = Find(field);
    if (child == nullptr || in_list_) return Copy(length);
    to_.skeleton.resize(before);  // the length changes
    return child->node != nullptr ? Descend(*child, length) : Take(child->tensor, length);
  }

  const Child* Find(int field) {
    if (message().groups > 0) return nullptr;
    for (const Child& child : message().node->children) {
      if (child.field == field) return &child;
    }
    return nullptr;
  }

  absl::Status Descend(const Child& child, std::size_t length) {
    if (child.tensor != kNoTensor) {
      bool& seen = seen_[static_cast<std::size_t>(child.tensor)];
      if (seen) return InvalidField(FieldOf(child.tensor), "occurs twice; expected one tensor");
      seen = true;
    }
    if (absl::Status status = CheckRoom(kLengthBytes); !status.ok()) return status;
    to_.skeleton.append(kLengthBytes, '\0');
    Open(child.node, length);
    return absl::OkStatus();
  }

  absl::Status Take(RequestTensor tensor, std::size_t length) {
    PayloadRange& range = to_.payloads[static_cast<std::size_t>(tensor)];
    if (range.present) {
      return InvalidField(absl::StrCat(FieldOf(tensor), ".data"), "occurs twice; expected it once");
    }
    range = {true, reader_.piece(), reader_.offset(), length};
    reader_.Skip(length);
    to_.skeleton.push_back('\0');  // there was a length here, so there is room
    return absl::OkStatus();
  }

  // As the generated parser reads tags: bits above the 32nd fall away.
  absl::Status ReadTag(std::uint32_t& tag) {
    for (std::size_t i = 0; i < kMaxTagBytes; ++i) {
      std::uint8_t byte = 0;
      if (absl::Status status = CopyByte(byte); !status.ok()) return status;
      tag |= static_cast<std::uint32_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) return absl::OkStatus();
    }
    return Malformed("has a tag that is too long");
  }

  absl::Status ReadLength(std::uint32_t& length) {
    for (std::size_t i = 0; i < kMaxTagBytes; ++i) {
      std::uint8_t byte = 0;
      if (absl::Status status = CopyByte(byte); !status.ok()) return status;
      if (i + 1 == kMaxTagBytes && byte >= 8) break;
      length |= static_cast<std::uint32_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80 && length <= kMaxLength) return absl::OkStatus();
      if (byte < 0x80) break;
    }
    return Malformed("has a length that is too long");
  }

  absl::Status CopyVarint() {
    for (std::size_t i = 0; i < kMaxVarintBytes; ++i) {
      std::uint8_t byte = 0;
      if (absl::Status status = CopyByte(byte); !status.ok()) return status;
      if (byte < 0x80) return absl::OkStatus();
    }
    return Malformed("has a number that is too long");
  }

  absl::Status CopyByte(std::uint8_t& byte) {
    if (left() == 0) return Malformed("ends inside a field");
    if (absl::Status status = CheckRoom(1); !status.ok()) return status;
    byte = reader_.ReadByte();
    to_.skeleton.push_back(static_cast<char>(byte));
    return absl::OkStatus();
  }

  absl::Status Copy(std::size_t bytes) {
    if (bytes > left()) return Malformed("ends inside a field");
    if (absl::Status status = CheckRoom(bytes); !status.ok()) return status;
    reader_.AppendTo(to_.skeleton, bytes);
    return absl::OkStatus();
  }

  absl::Status CheckRoom(std::size_t bytes) const {
    const std::size_t size = to_.skeleton.size();
    if (bytes > max_skeleton_bytes_ - size) {
      return InvalidField("request",
                          absl::StrCat("has more than ", max_skeleton_bytes_,
                                       " bytes outside the data of its tensors; expected no more"));
    }
    if (!in_list_ && bytes > kMaxRestBytes - (size - listed_bytes_)) {
      return InvalidField(
          "request", absl::StrCat("has more than ", kMaxRestBytes,
                                  " bytes outside the data of its tensors and its lists of lengths "
                                  "and offsets; expected no more"));
    }
    return absl::OkStatus();
  }

  absl::Status Malformed(absl::string_view what) const {
    const bool stream = type_ == MessageType::kAttendStreamRequest;
    return InvalidField("request",
                        absl::StrCat("is not an ", stream ? "AttendStreamRequest" : "AttendRequest",
                                     ": it ", what, " at byte ", reader_.position()));
  }

  const std::span<const grpc::Slice> pieces_;
  PieceReader reader_;
  const MessageType type_;
  const std::size_t max_skeleton_bytes_;
  CutMessage& to_;
  // Stream request, request, options, block mask, tensor.
  absl::InlinedVector<Message, 5> open_;
  std::array<bool, kNumRequestTensors> seen_{};
  bool in_list_ = false;          // the field that is being read is one
  std::size_t listed_bytes_ = 0;  // of the skeleton, lists that have been read
};

}  // namespace

absl::string_view FieldOf(RequestTensor tensor) {
  switch (tensor) {
    case RequestTensor::kQuery:
      return "query";
    case RequestTensor::kKey:
      return "key";
    case RequestTensor::kValue:
      return "value";
    case RequestTensor::kBooleanMask:
      return "boolean_mask";
    case RequestTensor::kAdditiveMask:
      return "additive_mask";
    case RequestTensor::kAlibiSlopes:
      return "options.alibi_slopes";
    case RequestTensor::kSinks:
      return "options.sinks";
    case RequestTensor::kBlocks:
      return "options.block_mask.blocks";
  }
  return "request";
}

absl::Status Cut(std::span<const grpc::Slice> pieces, MessageType type,
                 std::size_t max_skeleton_bytes, CutMessage& to) {
  return Cutter(pieces, type, max_skeleton_bytes, to).Run();
}

}  // namespace attend

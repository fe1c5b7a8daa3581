// Takes the bulk out of a request message before protobuf sees it.
//
// A typed `bytes` field is always copied into a string by the generated parser, and parsing unfolds
// a hostile message to many times its size. So one pass over the received pieces finds the elements
// of the tensors by the wire format, and leaves a skeleton: the same message with empty `data`.
// Everything else about it (unknown fields, packing, order, merging) stays the generated parser's
// business.
#ifndef ATTEND_SERVER_WIRE_MESSAGE_CUTTER_H_
#define ATTEND_SERVER_WIRE_MESSAGE_CUTTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <grpcpp/support/slice.h>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attend {

// The tensors of an AttendRequest.
enum class RequestTensor : std::uint8_t {
  kQuery,
  kKey,
  kValue,
  kBooleanMask,
  kAdditiveMask,
  kAlibiSlopes,
  kSinks,
  kBlocks,
};
inline constexpr std::size_t kNumRequestTensors = 8;

// The tensor's path from the request's root, such as "options.alibi_slopes".
absl::string_view FieldOf(RequestTensor tensor);

enum class MessageType : std::uint8_t { kAttendRequest, kAttendStreamRequest };

// Where the elements of a tensor lie: `size` bytes from byte `offset` of piece `piece` on, and on
// through the pieces after it.
struct PayloadRange {
  bool present = false;
  std::size_t piece = 0;
  std::size_t offset = 0;
  std::size_t size = 0;
};

struct CutMessage {
  // The message in the wire format, each tensor's `data` present where it was, and empty.
  std::string skeleton;
  std::array<PayloadRange, kNumRequestTensors> payloads;  // by RequestTensor
};

// Bounds what a skeleton holds beside the request's lists (query_lengths, kv_lengths and
// options.query_offsets, whose length is the caller's business): shapes, options, handles. What
// parses slowly, fields that the server does not know, is none of the lists.
inline constexpr std::size_t kMaxRestBytes = std::size_t{64} << 10;

// Cuts the message that the pieces make, one after the other. Copies nothing but the skeleton.
//
// Takes every encoding that the generated parser takes, with any cuts between the pieces. What
// the generated parser would refuse is refused here or by parsing the skeleton.
//
// Errors, all INVALID_ARGUMENT: naming "request" for bytes that are no message and for a skeleton
// of more than `max_skeleton_bytes`, or of more than kMaxRestBytes beside its lists; naming the
// tensor (or its `data`) where it occurs twice, which protobuf would merge.
absl::Status Cut(std::span<const grpc::Slice> pieces, MessageType type,
                 std::size_t max_skeleton_bytes, CutMessage& to);

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_MESSAGE_CUTTER_H_

// A request message as it arrived: its fields parsed, its tensors where the kernel can read them.
#ifndef ATTEND_SERVER_WIRE_RECEIVED_REQUEST_H_
#define ATTEND_SERVER_WIRE_RECEIVED_REQUEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <google/protobuf/arena.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attend/v1/attention.pb.h"
#include "core/base/attention_problem.h"
#include "core/base/buffer_pool.h"
#include "server/wire/message_cutter.h"
#include "server/wire/shared_memory_range.h"

namespace attend {

// What a message may hold beside the data of its tensors: lists with a value for each item, however
// they are encoded, and some room for the rest. Unit: bytes.
std::int64_t MaxSkeletonBytes(const AttentionLimits& limits);

// Owns the message's memory. In order: Read once; Args once; Gather once, before anything computes;
// Release when the tensors are not needed any more.
// Thread-safety: for one thread at a time.
class ReceivedRequest {
 public:
  // `pool` must outlive the object.
  explicit ReceivedRequest(BufferPool& pool) : pool_(pool), arena_(InitialBlock()) {}
  ReceivedRequest(const ReceivedRequest&) = delete;
  ReceivedRequest& operator=(const ReceivedRequest&) = delete;

  // Takes the message out of `message` and parses all of it but the tensors' data.
  // Errors: INVALID_ARGUMENT as Cut, and for what protobuf refuses.
  absl::Status Read(grpc::ByteBuffer& message, MessageType type, const AttentionLimits& limits);

  // Of kAttendRequest the request itself, of kAttendStreamRequest the one in `attend`.
  const v1::AttendRequest& request() const { return *request_; }
  // Of kAttendStreamRequest alone.
  const v1::AttendStreamRequest& stream_request() const { return *stream_request_; }

  // What the request asks for. The views point into this object. Masks, slopes and sinks can be
  // read at once, query, key and value only after Gather.
  // Errors: as ToAttentionArgs and SharedMemoryRange::Find, and RESOURCE_EXHAUSTED if memory
  // cannot be had.
  absl::StatusOr<AttentionArgs> Args(const AttentionLimits& limits,
                                     const SharedMemoryAccess& access);

  // Copies query, key and value to where the views of Args point. Apart from Args, so that a
  // request that is refused for want of room is never copied.
  // Errors: as SharedMemoryRange::Read.
  absl::Status Gather();

  // Lets go of the message and of the tensors.
  void Release();

  // Size of the message as it was received.
  std::int64_t message_bytes() const { return message_bytes_; }
  // Memory that the message and its tensors take from Gather to Release.
  std::int64_t held_bytes() const;
  // Tensor bytes that Args and Gather copied.
  std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  // Small messages are parsed into this.
  static constexpr std::size_t kArenaBytes = 1024;
  google::protobuf::ArenaOptions InitialBlock();

  bool ParseSkeleton(MessageType type);
  absl::Status FindInSharedMemory(const SharedMemoryAccess& access);
  // Says how large each tensor is, and where it is if it stays.
  void Measure();
  // Decides where the others' elements will be, and copies all that Gather does not.
  absl::Status Place();
  const std::byte* InPlace(const PayloadRange& payload) const;
  absl::Status Copy(RequestTensor tensor);

  BufferPool& pool_;
  alignas(16) std::array<char, kArenaBytes> arena_block_;
  google::protobuf::Arena arena_;
  v1::AttendStreamRequest* stream_request_ = nullptr;
  const v1::AttendRequest* request_ = nullptr;
  std::int64_t message_bytes_ = 0;
  std::int64_t copied_bytes_ = 0;
  std::vector<grpc::Slice> pieces_;
  CutMessage cut_;
  PooledBuffer copies_;
  bool some_in_place_ = false;
  bool uses_shared_memory_ = false;
  // By RequestTensor. Null: none, or in place and empty.
  std::array<std::span<const std::byte>, kNumRequestTensors> payloads_;
  // Where the elements are to be copied; null: they stay where they are.
  std::array<std::byte*, kNumRequestTensors> targets_{};
  // Of tensors that lie in shared memory.
  std::array<SharedMemoryRange, kNumRequestTensors> shared_;
};

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_RECEIVED_REQUEST_H_

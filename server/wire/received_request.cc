#include "server/wire/received_request.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/aligned_buffer.h"
#include "core/base/status.h"
#include "server/wire/attend_request.h"
#include "server/wire/piece_reader.h"

namespace attend {

namespace {

// Tensors of messages up to this size stay where gRPC put them, unless pieces cut them. Larger
// messages are copied out as a whole, so that gRPC's memory is free again at once.
constexpr std::size_t kMaxInPlaceBytes = std::size_t{64} << 10;

// A number in a list: a tag of one byte, and ten of the longest varint.
constexpr std::int64_t kMaxListedBytes = 11;
// query_lengths, kv_lengths and query_offsets.
constexpr std::int64_t kNumLists = 3;

constexpr std::array kGathered = {RequestTensor::kQuery, RequestTensor::kKey,
                                  RequestTensor::kValue};
constexpr std::array kReadAtOnce = {RequestTensor::kBooleanMask, RequestTensor::kAdditiveMask,
                                    RequestTensor::kAlibiSlopes, RequestTensor::kSinks,
                                    RequestTensor::kBlocks};

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace

std::int64_t MaxSkeletonBytes(const AttentionLimits& limits) {
  return static_cast<std::int64_t>(kMaxRestBytes) + kNumLists * kMaxListedBytes * limits.max_batch;
}

google::protobuf::ArenaOptions ReceivedRequest::InitialBlock() {
  google::protobuf::ArenaOptions options;
  options.initial_block = arena_block_.data();
  options.initial_block_size = arena_block_.size();
  return options;
}

absl::Status ReceivedRequest::Read(grpc::ByteBuffer& message, MessageType type,
                                   const AttentionLimits& limits) {
  message_bytes_ = message.Valid() ? static_cast<std::int64_t>(message.Length()) : 0;
  if (message.Valid() && !message.Dump(&pieces_).ok()) {
    return absl::InternalError("a received message cannot be read");
  }
  message.Clear();
  absl::Status status =
      Cut(pieces_, type, static_cast<std::size_t>(MaxSkeletonBytes(limits)), cut_);
  if (!status.ok()) return status;
  if (!ParseSkeleton(type)) {
    return InvalidField("request", "holds bytes that protobuf cannot parse");
  }
  // Kept only as its size: what was parsed holds the same.
  std::string().swap(cut_.skeleton);
  return absl::OkStatus();
}

bool ReceivedRequest::ParseSkeleton(MessageType type) {
  if (type == MessageType::kAttendRequest) {
    auto* request = google::protobuf::Arena::CreateMessage<v1::AttendRequest>(&arena_);
    request_ = request;
    return request->ParseFromString(cut_.skeleton);
  }
  stream_request_ = google::protobuf::Arena::CreateMessage<v1::AttendStreamRequest>(&arena_);
  const bool parsed = stream_request_->ParseFromString(cut_.skeleton);
  request_ = &stream_request_->attend();
  return parsed;
}

absl::StatusOr<AttentionArgs> ReceivedRequest::Args(const AttentionLimits& limits,
                                                    const SharedMemoryAccess& access) {
  if (absl::Status status = FindInSharedMemory(access); !status.ok()) return status;
  Measure();
  if (uses_shared_memory_) {
    // A caller may claim any size for what lies there: it must be that of a shape before memory is
    // taken for it. What arrived in the message has been paid for.
    const absl::StatusOr<AttentionArgs> sizes =
        ToAttentionArgs(*request_, payloads_, limits, access);
    if (!sizes.ok()) return sizes.status();
  }
  if (absl::Status status = Place(); !status.ok()) return status;
  return ToAttentionArgs(*request_, payloads_, limits, access);
}

absl::Status ReceivedRequest::FindInSharedMemory(const SharedMemoryAccess& access) {
  for (std::size_t i = 0; i < kNumRequestTensors; ++i) {
    const auto tensor = static_cast<RequestTensor>(i);
    const v1::Tensor* message = MessageOf(*request_, tensor);
    if (message == nullptr || !message->has_shared_memory()) continue;
    absl::StatusOr<SharedMemoryRange> range = SharedMemoryRange::Find(
        message->shared_memory(), access, absl::StrCat(FieldOf(tensor), ".shared_memory"));
    if (!range.ok()) return range.status();
    shared_[i] = *std::move(range);
    uses_shared_memory_ = true;
    cut_.payloads[i] = {};  // data that came before counts no more
  }
  return absl::OkStatus();
}

void ReceivedRequest::Measure() {
  const bool may_stay = static_cast<std::size_t>(message_bytes_) <= kMaxInPlaceBytes;
  for (std::size_t i = 0; i < kNumRequestTensors; ++i) {
    const PayloadRange& payload = cut_.payloads[i];
    const std::size_t size = shared_[i].present() ? shared_[i].size() : payload.size;
    if (size == 0) continue;
    const bool stays = may_stay && !shared_[i].present();
    const std::byte* in_place = stays ? InPlace(payload) : nullptr;
    payloads_[i] = {in_place, size};
    some_in_place_ = some_in_place_ || in_place != nullptr;
  }
}

absl::Status ReceivedRequest::Place() {
  const auto most = static_cast<std::size_t>(pool_.max_lent_bytes());
  std::size_t copied = 0;
  for (std::size_t i = 0; i < kNumRequestTensors; ++i) {
    const std::size_t size = payloads_[i].data() == nullptr ? payloads_[i].size() : 0;
    // No sum, which could wrap around.
    if (size > most || Aligned(size) > most - copied) {
      return InvalidField(FieldOf(static_cast<RequestTensor>(i)),
                          absl::StrCat("needs ", size, " bytes beside ", copied,
                                       " of other tensors; the server has memory for ", most,
                                       ": split the request"));
    }
    copied += Aligned(size);
  }
  if (copied == 0) return absl::OkStatus();
  copies_ = pool_.Acquire(static_cast<std::int64_t>(copied));
  if (!copies_.ok()) {
    return absl::ResourceExhaustedError("no memory for the request's tensors; try again later");
  }
  std::byte* next = copies_.data();
  for (std::size_t i = 0; i < kNumRequestTensors; ++i) {
    if (payloads_[i].empty() || payloads_[i].data() != nullptr) continue;
    targets_[i] = next;
    payloads_[i] = {next, payloads_[i].size()};
    next += Aligned(payloads_[i].size());
  }
  // What decides is read once, and never again where its owner may change it.
  absl::Status status;
  for (const RequestTensor tensor : kReadAtOnce) status.Update(Copy(tensor));
  return status;
}

const std::byte* ReceivedRequest::InPlace(const PayloadRange& payload) const {
  return PieceReader(pieces_, payload.piece, payload.offset).Contiguous(payload.size);
}

absl::Status ReceivedRequest::Copy(RequestTensor tensor) {
  const auto i = static_cast<std::size_t>(tensor);
  if (targets_[i] == nullptr) return absl::OkStatus();
  const std::size_t size = payloads_[i].size();
  copied_bytes_ += static_cast<std::int64_t>(size);
  if (shared_[i].present()) return shared_[i].Read({targets_[i], size});
  const PayloadRange& payload = cut_.payloads[i];
  PieceReader(pieces_, payload.piece, payload.offset).CopyTo(targets_[i], size);
  return absl::OkStatus();
}

absl::Status ReceivedRequest::Gather() {
  absl::Status status;
  for (const RequestTensor tensor : kGathered) status.Update(Copy(tensor));
  if (!some_in_place_) pieces_.clear();
  return status;
}

void ReceivedRequest::Release() {
  pieces_.clear();
  copies_.Reset();
}

std::int64_t ReceivedRequest::held_bytes() const {
  return (some_in_place_ ? message_bytes_ : 0) + copies_.capacity();
}

}  // namespace attend

// Messages cut into pieces, as gRPC delivers them.
#ifndef ATTEND_TESTS_UNIT_SERVER_WIRE_SLICES_H_
#define ATTEND_TESTS_UNIT_SERVER_WIRE_SLICES_H_

#include <algorithm>
#include <cstddef>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <string>
#include <vector>

namespace attend {

// Pieces of `piece_bytes` bytes and a shorter one; 0: one piece for all.
inline std::vector<grpc::Slice> SlicesOf(const std::string& bytes, std::size_t piece_bytes) {
  const std::size_t step = piece_bytes == 0 ? std::max<std::size_t>(1, bytes.size()) : piece_bytes;
  std::vector<grpc::Slice> slices;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    slices.emplace_back(bytes.data() + at, std::min(step, bytes.size() - at));
  }
  return slices;
}

inline grpc::ByteBuffer BufferOf(const std::string& bytes, std::size_t piece_bytes) {
  const std::vector<grpc::Slice> slices = SlicesOf(bytes, piece_bytes);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

inline std::string BytesOf(const std::vector<grpc::Slice>& slices) {
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

inline std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  return buffer.Dump(&slices).ok() ? BytesOf(slices) : "cannot be read";
}

}  // namespace attend

#endif  // ATTEND_TESTS_UNIT_SERVER_WIRE_SLICES_H_

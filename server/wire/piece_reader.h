// Reads a message that lies in pieces.
#ifndef ATTEND_SERVER_WIRE_PIECE_READER_H_
#define ATTEND_SERVER_WIRE_PIECE_READER_H_

#include <cstddef>
#include <cstdint>
#include <grpcpp/support/slice.h>
#include <span>
#include <string>

namespace attend {

// A position in a message. Cheap to copy: a copy reads on from the same place. The pieces must
// outlive it. Nothing is checked: the caller reads no more than is left.
class PieceReader {
 public:
  explicit PieceReader(std::span<const grpc::Slice> pieces);
  // From byte `offset` of piece `piece` on.
  PieceReader(std::span<const grpc::Slice> pieces, std::size_t piece, std::size_t offset);

  std::uint8_t ReadByte();
  void Skip(std::size_t bytes);
  void AppendTo(std::string& to, std::size_t bytes);
  void CopyTo(std::byte* to, std::size_t bytes);

  // Where the next `bytes` bytes lie if they lie in one piece, else null. `bytes` must not be 0.
  const std::byte* Contiguous(std::size_t bytes);

  // Bytes read and skipped.
  std::size_t position() const { return position_; }
  // Where the next byte lies, or would lie.
  std::size_t piece() const { return piece_; }
  std::size_t offset() const { return offset_; }

 private:
  // Goes on to the piece that holds the next byte; there must be one.
  void FindByte();
  // Calls chunk(address, size) for the next `bytes` bytes, piece by piece.
  template <typename Chunk>
  void ForEachChunk(std::size_t bytes, const Chunk& chunk);

  std::span<const grpc::Slice> pieces_;
  std::size_t piece_ = 0;
  std::size_t offset_ = 0;
  std::size_t position_ = 0;
};

}  // namespace attend

#endif  // ATTEND_SERVER_WIRE_PIECE_READER_H_

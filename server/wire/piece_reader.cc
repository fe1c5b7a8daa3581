#include "server/wire/piece_reader.h"

#include <algorithm>
#include <cstring>

namespace attend {

PieceReader::PieceReader(std::span<const grpc::Slice> pieces) : pieces_(pieces) {}

PieceReader::PieceReader(std::span<const grpc::Slice> pieces, std::size_t piece, std::size_t offset)
    : pieces_(pieces), piece_(piece), offset_(offset) {}

void PieceReader::FindByte() {
  while (offset_ == pieces_[piece_].size()) {
    ++piece_;
    offset_ = 0;
  }
}

std::uint8_t PieceReader::ReadByte() {
  FindByte();
  ++position_;
  return pieces_[piece_].begin()[offset_++];
}

template <typename Chunk>
void PieceReader::ForEachChunk(std::size_t bytes, const Chunk& chunk) {
  position_ += bytes;
  while (bytes > 0) {
    FindByte();
    const grpc::Slice& piece = pieces_[piece_];
    const std::size_t size = std::min(bytes, piece.size() - offset_);
    chunk(piece.begin() + offset_, size);
    offset_ += size;
    bytes -= size;
  }
}

void PieceReader::Skip(std::size_t bytes) {
  ForEachChunk(bytes, [](const std::uint8_t*, std::size_t) {});
}

void PieceReader::AppendTo(std::string& to, std::size_t bytes) {
  ForEachChunk(bytes, [&to](const std::uint8_t* from, std::size_t size) {
    to.append(reinterpret_cast<const char*>(from), size);
  });
}

void PieceReader::CopyTo(std::byte* to, std::size_t bytes) {
  ForEachChunk(bytes, [&to](const std::uint8_t* from, std::size_t size) {
    std::memcpy(to, from, size);
    to += size;
  });
}

const std::byte* PieceReader::Contiguous(std::size_t bytes) {
  FindByte();
  const grpc::Slice& piece = pieces_[piece_];
  if (piece.size() - offset_ < bytes) return nullptr;
  return reinterpret_cast<const std::byte*>(piece.begin() + offset_);
}

}  // namespace attend

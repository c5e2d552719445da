#include "collectives/index_message.hpp"

namespace pith {

namespace {

constexpr std::byte adds{0};
constexpr std::byte replaces_all{1};

}  // namespace

std::size_t most_index_bytes(Pieces parcel, std::size_t most) {
  std::size_t bytes = 0;
  for_each_piece(parcel, [&](const Piece& piece) {
    const std::size_t count = std::min(most, piece.range.size);
    bytes += 1 + EncodeIndicesKernel::coded_bound(count, piece.range.size);
  });
  return bytes;
}

void IndexWriter::put(Range range, const SparseList& list, bool replaces) {
  std::byte* out = message_.memory.bytes().data;
  out[message_.size++] = replaces ? replaces_all : adds;
  std::size_t written = 0;
  call_.run<EncodeIndicesKernel>({list.indices, list.count, static_cast<std::uint32_t>(range.begin),
                                  range.size, out + message_.size, &written});
  message_.size += written;
}

bool IndexReader::replaces() const { return left_.size > 0 && left_.data[0] == replaces_all; }

Decoded IndexReader::get(Range range, std::uint32_t* indices, std::size_t room) {
  Decoded decoded;
  if (left_.size == 0) return decoded;
  call_.run<DecodeIndicesKernel>({left_.data + 1, left_.size - 1,
                                  static_cast<std::uint32_t>(range.begin), range.size, indices,
                                  room, &decoded});
  if (!decoded.valid) return decoded;
  left_ = {left_.data + 1 + decoded.bytes, left_.size - 1 - decoded.bytes};
  return decoded;
}

}  // namespace pith

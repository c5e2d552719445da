#include "collectives/lists/index_message.hpp"

namespace pith {

namespace {

// The first byte of each list.
constexpr std::byte adds{0};
constexpr std::byte replaces_all{1};

}  // namespace

std::size_t most_index_bytes(Pieces parcel, std::size_t most) {
  std::size_t bytes = 0;
  for_each_piece(parcel, [&](const Piece& piece) { bytes += index_bytes(most, piece.range.size); });
  return bytes;
}

void IndexWriter::put(Range range, const SparseList& list, bool replaces) {
  put_value(replaces ? replaces_all : adds);
  std::size_t written = 0;
  ready_ = call_.run<EncodeIndicesKernel>({list.indices, list.count,
                                           static_cast<std::uint32_t>(range.begin), range.size,
                                           end_, &written});
  end_ += written;
}

bool IndexReader::replaces() const { return left_.size > 0 && left_.data[0] == replaces_all; }

Decoded IndexReader::get(Range range, std::uint32_t* indices, std::size_t room) {
  Decoded decoded;
  if (left_.size == 0) return decoded;
  skip(1);
  call_.run<DecodeIndicesKernel>({left_.data, left_.size, static_cast<std::uint32_t>(range.begin),
                                  range.size, indices, room, &decoded});
  if (decoded.valid) skip(decoded.bytes);
  return decoded;
}

}  // namespace pith

// Cuts a vector of one block a rank into pieces: piece k is the same few columns (elements) of
// every block. Algorithms that collect blocks of other ranks process one piece after another, so
// that their scratch stays at four chunks, however long the blocks are.
#pragma once

#include "collectives/typed_span.hpp"

namespace pith {

class Columns {
 public:
  Columns(const CollectiveArgs& args, int ranks)
      : type_(args.type),
        count_(args.count),
        columns_(std::clamp<std::size_t>(
            room(args.tuning) / (static_cast<std::size_t>(ranks) * size_of(args.type)), 1,
            std::max<std::size_t>(1, args.count))) {}

  // Bytes of one piece, all blocks together.
  static constexpr std::size_t room(const Tuning& tuning) { return 4 * tuning.chunk_bytes; }

  std::uint32_t pieces() const { return static_cast<std::uint32_t>(chunks_in(count_, columns_)); }
  // Bytes of one block in the first piece; the last piece may be smaller.
  std::size_t block_bytes() const { return columns_ * size_of(type_); }
  // The part of a block that belongs to piece k.
  Bytes of(Bytes blocks, int block, std::uint32_t k) const {
    return part(blocks, type_,
                chunk_of({static_cast<std::size_t>(block) * count_, count_}, columns_, k));
  }

 private:
  DType type_;
  std::size_t count_;
  std::size_t columns_;
};

// For costs: the number of pieces, and the bytes of one block in one piece.
struct BlockPieces {
  explicit BlockPieces(const Shape& shape) {
    const auto p = static_cast<std::size_t>(shape.ranks);
    const std::size_t columns = std::clamp<std::size_t>(Columns::room(shape.tuning) / p, 1,
                                                        std::max<std::size_t>(1, shape.bytes));
    count = static_cast<double>(chunks_in(shape.bytes, columns));
    bytes = static_cast<double>(std::min(columns, shape.bytes));
  }
  double count;
  double bytes;
};

}  // namespace pith

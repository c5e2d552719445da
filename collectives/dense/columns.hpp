// Cuts a vector of one block a rank into pieces: piece k is the same few columns (elements) of
// every block that is as long. Algorithms that collect blocks of other ranks process one piece
// after another, so that their scratch stays at four chunks, however long the blocks are.
#pragma once

#include "collectives/typed_span.hpp"

namespace pith {

class Columns {
 public:
  Columns(const CollectiveArgs& args, int ranks)
      : type_(args.type),
        ranks_(static_cast<std::size_t>(ranks)),
        count_(args.count),
        uneven_(args.uneven.common()),
        longest_(longest_block(args)),
        columns_(std::min(most_columns(args), std::max<std::size_t>(1, longest_))) {}

  // Bytes of one piece, all blocks together.
  static constexpr std::size_t room(const Tuning& tuning) { return 4 * tuning.chunk_bytes; }

  std::uint32_t pieces() const { return static_cast<std::uint32_t>(chunks_in(longest_, columns_)); }
  // Bytes of one block in the first piece; later pieces, and shorter blocks, may have fewer.
  std::size_t block_bytes() const { return columns_ * size_of(type_); }
  // Bytes of all blocks in the first piece.
  std::size_t all_bytes() const {
    if (!uneven_) return ranks_ * block_bytes();
    return elements_in_columns({uneven_, ranks_}, columns_) * size_of(type_);
  }
  bool are_even() const { return uneven_ == nullptr; }
  // Bytes of a block in piece k.
  std::size_t bytes_of(int block, std::uint32_t k) const {
    return chunk_of({0, whole(block).size}, columns_, k).size * size_of(type_);
  }
  // The part of a block that belongs to piece k.
  Bytes of(Bytes blocks, int block, std::uint32_t k) const {
    return part(blocks, type_, chunk_of(whole(block), columns_, k));
  }
  // The same where the block is the whole buffer.
  Bytes of_whole(Bytes buffer, int block, std::uint32_t k) const {
    return part(buffer, type_, chunk_of({0, whole(block).size}, columns_, k));
  }

 private:
  std::size_t most_columns(const CollectiveArgs& args) const {
    const std::size_t elements = room(args.tuning) / size_of(args.type);
    if (uneven_) return columns_within({uneven_, ranks_}, elements);
    return std::max<std::size_t>(1, elements / ranks_);
  }
  Range whole(int block) const {
    const auto b = static_cast<std::size_t>(block);
    return uneven_ ? uneven_[b] : Range{b * count_, count_};
  }

  DType type_;
  std::size_t ranks_;
  std::size_t count_;
  const Range* uneven_;  // null: all blocks have `count_` elements
  std::size_t longest_;
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

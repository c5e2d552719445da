// A parcel of a call whose messages are as long as the values make them: which elements go to which
// rank, where they lie, and their codes.
#pragma once

#include "collectives/lists/parcels.hpp"
#include "core/sparse/varying_coding.hpp"

namespace pith {

// What a message begins with.
struct VaryingHead {
  static constexpr std::uint32_t nonfinite = 1;  // some rank's gradient has such elements
  std::uint32_t flags = 0;
};

// Consecutive elements of a vector.
struct VaryingSlice {
  std::size_t tensor = 0;
  Range range;         // in the vector
  std::size_t at = 0;  // in the parcel
};

class VaryingParcel {
 public:
  // Elements on which kernels work at once: whole blocks of every coding, that stay in the cache.
  static constexpr std::size_t at_once = std::size_t{1} << 16;

  // `pieces`: at the parcel's first piece. `sums`: memory for all of its elements. `copies`: of the
  // vectors, likewise, if these are on a device; else null.
  VaryingParcel(const SparseCall& args, const VaryingCoding& coding, Pieces pieces, float* sums,
                float* copies)
      : args_(args), coding_(coding), pieces_(pieces), sums_(sums), copies_(copies) {
    for_each_piece(pieces, [this](const Piece& piece) { count_ += piece.range.size; });
  }

  const SparseCall& args() const { return args_; }
  const VaryingCoding& coding() const { return coding_; }
  Pieces pieces() const { return pieces_; }
  std::size_t count() const { return count_; }

  // The elements that a rank adds up.
  Range segment(int rank, int ranks) const {
    const std::size_t block = coding_.kind == VaryingCoding::Kind::bounded ? coding_.block() : 1;
    const Range blocks = Blocks(chunks_in(count_, block), ranks)[rank];
    const std::size_t begin = std::min(blocks.begin * block, count_);
    return {begin, std::min((blocks.begin + blocks.size) * block, count_) - begin};
  }
  // Of a message with the elements of a segment. Each vector's begin a block of their own.
  std::size_t most_bytes(Range segment) const {
    std::size_t bytes = sizeof(VaryingHead);
    for_each_slice(
        segment, [&](const VaryingSlice& slice) { bytes += coding_.most_bytes(slice.range.size); });
    return bytes;
  }

  float* sums(const VaryingSlice& slice) const { return sums_ + slice.at; }
  // This rank's values, in host memory.
  const float* own(const VaryingSlice& slice) const {
    if (copies_) return copies_ + slice.at;
    return compressor(slice).accumulator() + slice.range.begin;
  }
  // Where what is to be added to accumulators goes; see Compressor::changes(). In copies it takes
  // the values' place.
  float* change(const VaryingSlice& slice) const {
    if (copies_) return copies_ + slice.at;
    return compressor(slice).changes() + slice.range.begin;
  }

  // Calls each(slice) for the vectors' parts in a range of the parcel.
  template <class Each>
  void for_each_slice(Range wanted, const Each& each) const {
    std::size_t at = 0;
    for_each_piece(pieces_, [&](const Piece& piece) {
      const std::size_t begin = std::max(at, wanted.begin);
      const std::size_t end = std::min(at + piece.range.size, wanted.begin + wanted.size);
      if (begin < end) {
        each(VaryingSlice{piece.tensor, {piece.range.begin + begin - at, end - begin}, begin});
      }
      at += piece.range.size;
    });
  }
  // The same in parts on which kernels work at once.
  template <class Each>
  void for_each_part(Range wanted, const Each& each) const {
    for_each_slice(wanted, [&](const VaryingSlice& slice) {
      for (std::size_t done = 0; done < slice.range.size; done += at_once) {
        const std::size_t n = std::min(at_once, slice.range.size - done);
        each(VaryingSlice{slice.tensor, {slice.range.begin + done, n}, slice.at + done});
      }
    });
  }

 private:
  Compressor& compressor(const VaryingSlice& slice) const {
    return *args_.tensors[slice.tensor].compressor;
  }

  const SparseCall& args_;
  const VaryingCoding& coding_;
  Pieces pieces_;
  std::size_t count_ = 0;
  float* sums_;
  float* copies_;
};

}  // namespace pith

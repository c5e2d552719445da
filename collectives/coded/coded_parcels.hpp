// How a coded call is cut into parcels, each of the same few columns (elements) of every block, and
// the memory that a parcel takes. All ranks cut alike.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/algorithm.hpp"
#include "collectives/patterns.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

// What moves a parcel's coded blocks. Those to be summed go to the ranks that sum them.
constexpr Collective carrier_of(Collective collective) {
  return collective == Collective::reduce_scatter ? Collective::alltoall : collective;
}

class CodedParcels {
 public:
  static constexpr std::size_t most_strands = 4;  // parcels on their way at once

  // So few elements that several parcels overlap, so many that a message is worth its start, and
  // whole blocks of the coding.
  CodedParcels(const CollectiveArgs& args, const Coding& coding, int ranks)
      : count_(args.count),
        coding_(coding),
        extent_(extent_of(carrier_of(args.collective), ranks)),
        is_summed_(reduces(args.collective)) {
    constexpr std::size_t parcels = 16;
    const std::size_t blocks = std::max(extent_.send, extent_.recv);
    const std::size_t least = 2 * args.tuning.chunk_bytes;
    const std::size_t all = std::clamp(chunks_in(count_ * blocks, parcels), least, 8 * least);
    columns_ = chunks_in(all, blocks * coding.block) * coding.block;
  }

  std::size_t size() const { return chunks_in(count_, columns_); }
  std::size_t strands() const { return std::min(size(), most_strands); }
  Range columns(std::size_t parcel) const { return chunk_of({0, count_}, columns_, parcel); }

  // Blocks that leave this rank and that arrive; a broadcast's are one.
  const Extent& extent() const { return extent_; }
  // Whether blocks cannot arrive where others leave.
  bool are_apart() const { return extent_.send > 1; }

  // Bytes of the largest parcel's coded blocks.
  std::size_t coded_bytes() const {
    const std::size_t blocks = extent_.recv + (are_apart() ? extent_.send : 0);
    return blocks * coding_.bytes(std::min(columns_, count_));
  }
  // Elements of which kernels work at once: all on a device, else what stays in the cache.
  std::size_t piece(bool on_device) const {
    constexpr std::size_t in_cache = std::size_t{1} << 14;  // a multiple of every coding's block
    return std::min({columns_, count_, on_device ? columns_ : in_cache});
  }
  // Of float32 that are not coded yet or no more: what one rank sends, or a sum and what is added.
  std::size_t float_bytes(bool on_device) const {
    return (is_summed_ ? 2 : 1) * piece(on_device) * sizeof(float);
  }

 private:
  std::size_t count_;
  Coding coding_;
  Extent extent_;
  bool is_summed_;
  std::size_t columns_ = 0;
};

}  // namespace pith

// How ExDyna and MiCRO cut a vector into one partition per rank and adapt the cut to what was
// elected where. Pure arithmetic on agreed counts: every rank gets the same cut without a message.
//
//  neighbour  the authors': 1,024 blocks; adjacent partitions trade one block a step where one has
//             elected more than 1.05 and the other less than 0.95238 of the mean
//  prefix     blocks as well, with a running mean of what each elects; rank i's partition begins
//             where the prefix sum passes i/N of the total. Unlike trading it cannot get stuck
//  slices     MiCRO: N equal, constant slices
//
// More than 256 ranks get 4 N blocks, so that a quarter of the fair share, the minimum size of a
// partition, is one block. The authors' block size is a multiple of 32; the last partition gets the
// rest. Deviations where their code fails: below 32,768 elements the block size is 0, so that the
// last partition is the whole vector and the others elect nothing; one rank has one partition; and
// nothing is traded after a step that elected fewer elements than there are ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/exdyna_scheme.hpp"

namespace pith {

class ExdynaPartition {
 public:
  using Kind = Partition;

  // Adapts to this shape. Starts anew if the number of ranks has changed, but keeps the means of
  // blocks. count > 0.
  void fit(Kind kind, std::size_t count, int ranks);
  bool fits(int ranks) const { return starts_.size() == static_cast<std::size_t>(ranks) + 1; }

  std::size_t ranks() const { return starts_.size() - 1; }
  std::size_t begin(std::size_t partition) const { return starts_[partition]; }
  std::size_t size(std::size_t partition) const {
    return starts_[partition + 1] - starts_[partition];
  }
  // The expected share of a partition in everything elected; 1/N initially.
  double share(std::size_t partition) const { return shares_[partition]; }
  std::size_t blocks() const { return blocks_; }
  // The block of an element; blocks() for elements behind the authors' last block.
  std::size_t block_of(std::uint32_t index) const {
    return block_size_ == 0 ? blocks_ : index / block_size_;
  }

  // Computes the next cut from what a step has elected: by partition, and for `prefix` by block.
  void follow(std::span<const std::uint64_t> by_partition, std::span<const std::uint32_t> by_block);

  struct State {
    std::vector<std::uint32_t> cuts;
    std::vector<double> block_means, partition_means;
  };
  State state() const { return {cuts_, block_means_, partition_means_}; }
  // After fit(), for the same number of ranks and elements; otherwise only the blocks' means are
  // used.
  void restore(const State& state);

 private:
  void lay_out_blocks(int ranks);
  void cut_evenly(std::size_t ranks);
  void cut_by_prefix();
  void trade(std::span<const std::uint64_t> by_partition);
  void place();
  void expect();

  Kind kind_ = Kind::prefix;
  std::size_t count_ = 0;
  std::size_t blocks_ = 0;
  std::size_t block_size_ = 0;
  std::vector<std::uint32_t> cuts_;  // first block of each partition, and `blocks_`
  std::vector<std::size_t> starts_;  // first element of each partition, and `count_`
  std::vector<double> shares_;
  std::vector<double> block_means_;      // running means of elements elected
  std::vector<double> partition_means_;  // the same
  std::vector<std::int64_t> traded_;     // scratch of trade()
};

}  // namespace pith

// One shot over views: rank r gets block r of all vectors and reduces it.
//
// Kernels read in place what they reach. Memory that can only be copied is fetched chunk by chunk.
// Everything else comes by messages of one chunk each. Each pair of ranks does what the sender's
// buffer allows.
#pragma once

#include "collectives/dense/handle_exchange.hpp"

namespace pith {

static_assert(most_view_ranks <= ReduceManyKernel::most_operands);

struct Shot {
  static constexpr std::uint16_t input_lane = 0;

  CollectiveArgs args;
  HandleExchange& handles;
  std::array<Range, most_view_ranks> blocks;  // of send, by the rank that reduces them
  std::size_t chunk;                          // in elements
  int ranks;

  Range block_of(int owner) const { return blocks[static_cast<std::size_t>(owner)]; }
  Range piece(int owner, std::uint32_t k) const { return chunk_of(block_of(owner), chunk, k); }
  std::uint32_t chunks(int owner) const {
    return static_cast<std::uint32_t>(chunks_in(block_of(owner).size, chunk));
  }
  // Of the longest block.
  std::uint32_t most_chunks() const {
    return static_cast<std::uint32_t>(
        chunks_in(longest_of(blocks.data(), static_cast<std::size_t>(ranks)), chunk));
  }
  std::byte* at(std::byte* vector, Range range) const {
    return vector + range.begin * size_of(args.type);
  }
  std::uint64_t far(std::uint64_t vector, Range range) const {
    return vector + range.begin * size_of(args.type);
  }
  std::size_t chunk_bytes() const { return chunk * size_of(args.type); }
  // Host scratch for one chunk of every rank; empty where nothing is fetched.
  Scratch room_for_fetched(const Call& call) const;
};

// Sends block p of this rank's vector, chunk by chunk, to each rank p that cannot read it: every
// `strands`-th message from message `strand` on.
Task<Error> give_inputs(Call& call, const Shot& shot, std::size_t strand = 0,
                        std::size_t strands = 1);

// Finds chunk k of this rank's block in the vectors of all ranks: addresses in rank order that
// kernels can read. `fetched` is room_for_fetched().
Task<Error> take_inputs(Call& call, const Shot& shot, std::uint32_t k, Bytes fetched,
                        Leases& leases, std::span<const std::byte*> inputs);

// The addresses of `range` in all vectors, where a device's kernels reach all of them.
void find_inputs(const Call& call, const Shot& shot, Range range,
                 std::span<const std::byte*> inputs);

}  // namespace pith

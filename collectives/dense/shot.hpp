// One shot over views: block r of everybody's vector on its way to rank r, which reduces it.
//
// Kernels read in place what they reach; what can only be copied is fetched chunk by chunk; the
// rest comes by messages of a chunk. Each pair of ranks does as the giver's buffer allows.
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
  std::byte* at(std::byte* vector, Range range) const {
    return vector + range.begin * size_of(args.type);
  }
  std::uint64_t far(std::uint64_t vector, Range range) const {
    return vector + range.begin * size_of(args.type);
  }
  std::size_t chunk_bytes() const { return chunk * size_of(args.type); }
  // Room on the host for a chunk of every rank, where some are fetched.
  Scratch room_for_fetched(const Call& call) const;
};

// Giving: block p of our vector to each rank p that cannot read it itself; every `strands`-th
// message from this one on. The first block is none of the shorter ones.
Task<Error> give_inputs(Call& call, const Shot& shot, std::size_t strand = 0,
                        std::size_t strands = 1);

// Taking: chunk k of our own block of every rank's vector, as kernels can read it, in the order of
// ranks. `fetched` is room_for_fetched().
Task<Error> take_inputs(Call& call, const Shot& shot, std::uint32_t k, Bytes fetched,
                        Leases& leases, std::span<const std::byte*> inputs);

// Where kernels of a device reach all vectors: those of `range`.
void find_inputs(const Call& call, const Shot& shot, Range range,
                 std::span<const std::byte*> inputs);

}  // namespace pith

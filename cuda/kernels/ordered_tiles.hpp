// Passes a running sum from tile to tile within one launch: decoupled look-back [Merrill and
// Garland 2016]. A block takes the next tile when it starts, so it only waits for tiles of running
// blocks. Results do not depend on which block gets a tile.
#pragma once

#include "cuda/kernels/block.hpp"

namespace pith::cuda {

// In device memory, zero before the launch; `states` has one word per tile.
struct TileState {
  std::uint64_t next;       // the next tile to take
  std::uint64_t finished;   // number of tiles
  std::uint64_t nonfinite;  // number of elements
  std::uint64_t bad;        // number of blocks with invalid input
  std::uint64_t states[1];
};
static_assert(sizeof(TileState) == 40);

constexpr std::size_t tile_state_bytes(std::size_t tiles) {
  return sizeof(TileState) + tiles * sizeof(std::uint64_t);
}

// A tile's state: a flag, and the sum of this tile alone or of all tiles up to it.
inline constexpr std::uint64_t own_sum = std::uint64_t{1} << 62;
inline constexpr std::uint64_t whole_sum = std::uint64_t{2} << 62;
inline constexpr std::uint64_t sum_mask = own_sum - 1;

// Takes the next tile. `told`: a word of shared memory that passes it to all threads.
template <class Block>
PITH_KERNEL std::uint64_t take_tile(const Block& block, TileState* tiles, std::uint64_t& told) {
  block.each([&](unsigned thread) {
    if (thread == 0) told = add_global(&tiles->next, 1);
  });
  block.sync();
  const std::uint64_t tile = told;
  block.sync();
  return tile;
}

// The sum of all tiles before this one, computed by the block's first warp.
PITH_DEVICE std::uint64_t look_back(const std::uint64_t* states, std::uint64_t tile,
                                    [[maybe_unused]] unsigned lane) {
  std::uint64_t sum = 0;
#ifdef __CUDA_ARCH__
  for (auto last = static_cast<long long>(tile) - 1;; last -= 32) {
    const long long at = last - lane;
    std::uint64_t state = whole_sum;  // for places before the first tile
    while (at >= 0 && (state = load_fresh(states + at)) == 0) {
    }
    const unsigned whole = __ballot_sync(0xffffffffu, (state & whole_sum) != 0);
    const unsigned nearest = whole != 0 ? lowest_bit(whole) : 31;
    unsigned long long part = lane <= nearest ? state & sum_mask : 0;
    for (unsigned step = 16; step > 0; step /= 2) part += __shfl_xor_sync(0xffffffffu, part, step);
    sum += part;
    if (whole != 0) return sum;
  }
#else
  while (tile-- > 0) {
    std::uint64_t state = 0;
    while ((state = load_fresh(states + tile)) == 0) yield_to_others();
    sum += state & sum_mask;
    if ((state & whole_sum) != 0) break;
  }
  return sum;
#endif
}

// Adds this tile's sum to the running sum and returns its previous value. kInPlace: all reads of
// this block complete before any later tile returns from this call.
template <bool kInPlace = false, class Block>
PITH_KERNEL std::uint64_t sum_before(const Block& block, TileState* tiles, std::uint64_t tile,
                                     std::uint64_t own, std::uint64_t& told) {
  block.sync();
  block.each([&](unsigned thread) {
    if (thread != 0) return;
    fence_global();
    store_fresh(&tiles->states[tile], (tile == 0 ? whole_sum : own_sum) | own);
  });
  block.each([&](unsigned thread) {
    if (thread >= 32) return;
#ifndef __CUDA_ARCH__
    if (thread != 0) return;
#endif
    const std::uint64_t before = look_back(tiles->states, tile, thread);
    if constexpr (kInPlace) {
      // Each lane has read states of different tiles; this tile's state must imply their reads,
      // too.
      fence_global();
      sync_warp();
      if (thread == 0) fence_global();
    }
    if (thread != 0) return;
    if (tile != 0) store_fresh(&tiles->states[tile], whole_sum | (before + own));
    fence_global();
    told = before;
  });
  block.sync();
  const std::uint64_t before = told;
  block.sync();
  return before;
}

// True for the block that ends last; it sees everything the others have written.
template <class Block>
PITH_KERNEL bool ends_last(const Block& block, TileState* tiles, std::uint64_t count,
                           std::uint64_t& told) {
  block.sync();
  block.each([&](unsigned thread) {
    if (thread != 0) return;
    fence_global();
    told = add_global(&tiles->finished, 1) + 1 == count ? 1 : 0;
    fence_global();
  });
  block.sync();
  const bool last = told != 0;
  block.sync();
  return last;
}

// Stores each tile's part of a float64 sum, so that the parts are added in a fixed order.
template <class Block>
PITH_KERNEL void leave_part(const Block& block, double* parts, std::uint64_t tile,
                            typename Block::template PerThread<double>& values, WarpSums& room) {
  const double sum = block.sum(values, room);
  block.each([&](unsigned thread) {
    if (thread == 0) {
      store_fresh(reinterpret_cast<std::uint64_t*>(parts) + tile, bits_as<std::uint64_t>(sum));
    }
  });
}
template <class Block>
PITH_KERNEL double sum_of_parts(const Block& block, const double* parts, std::uint64_t count,
                                WarpSums& room) {
  typename Block::template PerThread<double> sums;
  block.each([&](unsigned thread) {
    double sum = 0;
    for (std::uint64_t i = thread; i < count; i += Block::threads) {
      sum += bits_as<double>(load_fresh(reinterpret_cast<const std::uint64_t*>(parts) + i));
    }
    sums[thread] = sum;
  });
  return block.sum(sums, room);
}

// The first position in an ascending list whose index is at least `index`.
PITH_DEVICE std::size_t place_of_index(const std::uint32_t* indices, std::size_t count,
                                       std::uint64_t index) {
  std::size_t low = 0;
  while (low < count) {
    const std::size_t middle = low + (count - low) / 2;
    if (indices[middle] < index) {
      low = middle + 1;
    } else {
      count = middle;
    }
  }
  return low;
}

}  // namespace pith::cuda

// Kernels on the elements that a list of indices names: take, round, return; and the sum of
// squares. Indices are distinct, so threads never write the same element.
#pragma once

#include "cuda/kernels/numbers.hpp"
#include "cuda/kernels/ordered_tiles.hpp"

namespace pith::cuda {

struct ListArgs {
  float* accumulator = nullptr;
  const std::uint32_t* indices = nullptr;
  const float* in = nullptr;    // round
  std::byte* values = nullptr;  // written by take and round, read by the others
  std::size_t count = 0;
  double* squares = nullptr;
  TileState* state = nullptr;  // take and squares
  double* parts = nullptr;
  std::uint64_t tiles = 0;
};

enum class ListWork { take, round, give_back, squares };

template <class T, ListWork kWork>
struct ListPass {
  using Args = ListArgs;
  static constexpr unsigned threads = 256, items = 4;
  static constexpr std::size_t tile_elements = std::size_t{threads} * items;
  static constexpr bool sums = kWork == ListWork::take || kWork == ListWork::squares;
  struct Shared {
    WarpSums sums;
    std::uint64_t told;
  };

  // Returns the value whose square is summed.
  PITH_DEVICE static double one(const Args& args, std::size_t i, bool aligned) {
    if constexpr (kWork == ListWork::take) {
      float& from = args.accumulator[args.indices[i]];
      const T value = to_value<T>(from);
      store_element(args.values, i, value, aligned);
      const float taken = widen(value);
      from -= taken;
      return static_cast<double>(taken);
    } else if constexpr (kWork == ListWork::round) {
      const T value = to_value<T>(args.in[i]);
      store_element(args.values, i, value, aligned);
      if constexpr (!std::is_same_v<T, float>) {
        args.accumulator[args.indices[i]] += args.in[i] - widen(value);
      }
      return 0;
    } else {
      const float value = widen(load_element<T>(args.values, i, aligned));
      if constexpr (kWork == ListWork::give_back) args.accumulator[args.indices[i]] += value;
      return static_cast<double>(value);
    }
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const std::size_t begin = block.index() * tile_elements;
    const bool aligned = misalignment(args.values, sizeof(T)) == 0;
    typename Block::template PerThread<double> squares;
    block.each([&](unsigned thread) {
      double sum = 0;
      PITH_UNROLL
      for (unsigned item = 0; item < items; ++item) {
        const std::size_t i = begin + item * threads + thread;
        if (i >= args.count) continue;
        const double value = one(args, i, aligned);
        sum += value * value;
      }
      squares[thread] = sum;
    });
    if constexpr (sums) {
      leave_part(block, args.parts, block.index(), squares, shared.sums);
      if (!ends_last(block, args.state, args.tiles, shared.told)) return;
      const double all = sum_of_parts(block, args.parts, args.tiles, shared.sums);
      block.each([&](unsigned thread) {
        if (thread == 0) *args.squares = all;
      });
    }
  }
};

struct BlockCountArgs {
  const std::uint32_t* indices;
  std::size_t count;
  std::uint32_t first;           // number of the first block's first element
  std::uint32_t block_elements;  // in each block but the last
  std::uint32_t blocks;
  std::uint64_t end;  // one past the last block's last element
  std::uint32_t* counts;
};

// Counts a list's elements in each block of a vector; one thread per block.
struct CountBlocks {
  using Args = BlockCountArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    block.each([&](unsigned thread) {
      const std::uint32_t own = block.index() * threads + thread;
      if (own >= args.blocks) return;
      const std::uint64_t begin = args.first + std::uint64_t{own} * args.block_elements;
      const std::uint64_t end = own + 1 == args.blocks ? args.end : begin + args.block_elements;
      args.counts[own] =
          static_cast<std::uint32_t>(place_of_index(args.indices, args.count, end) -
                                     place_of_index(args.indices, args.count, begin));
    });
  }
};

}  // namespace pith::cuda

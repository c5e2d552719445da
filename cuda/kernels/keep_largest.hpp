// The k largest of a list: radix selection finds their smallest magnitude (three passes over the
// list, of 11, 10 and 10 bits), then one pass partitions the list in place and in order.
//
// In place is safe: a tile writes only before its own end, and only after all earlier tiles have
// been read.
#pragma once

#include "cuda/kernels/numbers.hpp"
#include "cuda/kernels/ordered_tiles.hpp"

namespace pith::cuda {

inline constexpr unsigned radix_passes = 3;
inline constexpr unsigned radix_bins = 2048;
constexpr unsigned radix_bits(unsigned pass) { return pass == 0 ? 11 : 10; }
constexpr unsigned radix_shift(unsigned pass) { return pass == 0 ? 20 : pass == 1 ? 10 : 0; }

// Zero before the first pass.
struct KthState {
  std::uint64_t rank;                    // of the k-th among those that share the prefix; from 1
  std::uint64_t prefix;                  // of its bits; all of them after the last pass
  std::uint64_t finished[radix_passes];  // number of blocks
  std::uint64_t bins[radix_passes][radix_bins];
};

struct KthArgs {
  const float* values;
  std::size_t count;
  std::size_t k;
  KthState* state;
};

template <unsigned kPass>
struct FindKth {
  using Args = KthArgs;
  static constexpr unsigned threads = 256;
  static constexpr unsigned bits = radix_bits(kPass), shift = radix_shift(kPass);
  static constexpr unsigned bins = 1u << bits, own_bins = bins / threads;
  struct Shared {
    std::uint32_t bins[radix_bins];
    std::uint64_t told;
    WarpSums sums;
  };

  template <class Block>
  PITH_KERNEL static void count_all(const Block& block, const Args& args, Shared& shared) {
    const std::uint64_t prefix = kPass == 0 ? 0 : load_fresh(&args.state->prefix);
    block.each([&](unsigned thread) {
      for (unsigned bin = thread; bin < bins; bin += threads) shared.bins[bin] = 0;
    });
    block.sync();
    const std::size_t all = std::size_t{block.count()} * threads;
    block.each([&](unsigned thread) {
      for (std::size_t i = std::size_t{block.index()} * threads + thread; i < args.count;
           i += all) {
        const std::uint32_t magnitude = magnitude_of(args.values[i]);
        if (kPass > 0 && magnitude >> (shift + bits) != prefix) continue;
        add_shared(&shared.bins[magnitude >> shift & (bins - 1)], 1u);
      }
    });
    block.sync();
    block.each([&](unsigned thread) {
      for (unsigned bin = thread; bin < bins; bin += threads) {
        if (shared.bins[bin] != 0) add_global(&args.state->bins[kPass][bin], shared.bins[bin]);
      }
    });
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    count_all(block, args, shared);
    block.sync();
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      fence_global();
      shared.told = add_global(&args.state->finished[kPass], 1) + 1;
      fence_global();
    });
    block.sync();
    if (shared.told != block.count()) return;
    const std::uint64_t rank = kPass == 0 ? args.k : load_fresh(&args.state->rank);
    const std::uint64_t prefix = kPass == 0 ? 0 : load_fresh(&args.state->prefix);
    // Threads take the bins in descending order.
    const auto bin_of = [](unsigned thread, unsigned i) {
      return bins - 1 - thread * own_bins - i;
    };
    typename Block::template PerThread<std::uint64_t> above;
    block.each([&](unsigned thread) {
      above[thread] = 0;
      for (unsigned i = 0; i < own_bins; ++i) {
        above[thread] += load_fresh(&args.state->bins[kPass][bin_of(thread, i)]);
      }
    });
    block.exclusive_sum(above, shared.sums);
    block.each([&](unsigned thread) {
      std::uint64_t seen = above[thread];
      for (unsigned i = 0; i < own_bins; ++i) {
        const std::uint64_t here = load_fresh(&args.state->bins[kPass][bin_of(thread, i)]);
        if (seen < rank && rank <= seen + here) {
          store_fresh(&args.state->rank, rank - seen);
          store_fresh(&args.state->prefix, prefix << bits | bin_of(thread, i));
        }
        seen += here;
      }
    });
  }
};

struct KeepArgs {
  std::uint32_t* indices;
  float* values;
  std::size_t count;
  std::size_t k;
  float* accumulator;  // or null
  float* smallest;
  double* squares;
  const KthState* kth;
  TileState* state;
  double* parts;
  std::uint64_t tiles;
};

struct KeepLargest {
  using Args = KeepArgs;
  static constexpr unsigned threads = 256, items = 4;
  static constexpr std::size_t tile_elements = std::size_t{threads} * items;
  struct Shared {
    WarpSums sums;
    std::uint64_t told;
  };
  struct Pairs {
    std::uint32_t indices[items];
    float values[items];
  };
  // Two counts in one word, each below 2^31.
  static constexpr std::uint64_t larger_one = 1, equal_one = std::uint64_t{1} << 31;

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const std::uint64_t tile = take_tile(block, args.state, shared.told);
    const std::size_t begin = tile * tile_elements;
    const auto kth = static_cast<std::uint32_t>(load_fresh(&args.kth->prefix));
    const std::uint64_t ties = load_fresh(&args.kth->rank);
    typename Block::template PerThread<Pairs> pairs;
    typename Block::template PerThread<std::uint64_t> counts;
    typename Block::template PerThread<double> squares;
    block.each([&](unsigned thread) {
      Pairs& own = pairs[thread];
      std::uint64_t count = 0;
      PITH_UNROLL
      for (unsigned i = 0; i < items; ++i) {
        const std::size_t at = begin + thread * items + i;
        own.indices[i] = at < args.count ? args.indices[at] : 0;
        own.values[i] = at < args.count ? args.values[at] : 0.0f;
        const std::uint32_t magnitude = magnitude_of(own.values[i]);
        if (at >= args.count) continue;
        count += magnitude > kth ? larger_one : magnitude == kth ? equal_one : 0;
      }
      counts[thread] = count;
    });
    const std::uint64_t own = block.exclusive_sum(counts, shared.sums);
    const std::uint64_t before = sum_before<true>(block, args.state, tile, own, shared.told);
    block.each([&](unsigned thread) {
      const Pairs& mine = pairs[thread];
      const std::uint64_t sum = before + counts[thread];
      std::uint64_t above = sum & (equal_one - 1);
      std::uint64_t equal = sum >> 31;
      double sum_of_squares = 0;
      PITH_UNROLL
      for (unsigned i = 0; i < items; ++i) {
        if (begin + thread * items + i >= args.count) continue;
        const float value = mine.values[i];
        const std::uint32_t magnitude = magnitude_of(value);
        const std::uint64_t place = above + smaller(equal, ties);
        const bool keeps = magnitude > kth || (magnitude == kth && equal < ties);
        if (magnitude > kth) ++above;
        if (magnitude == kth) ++equal;
        if (keeps) {
          args.indices[place] = mine.indices[i];
          args.values[place] = value;
          sum_of_squares += static_cast<double>(value) * static_cast<double>(value);
        } else if (args.accumulator) {
          args.accumulator[mine.indices[i]] = value;
        }
      }
      squares[thread] = sum_of_squares;
    });
    leave_part(block, args.parts, tile, squares, shared.sums);
    if (!ends_last(block, args.state, args.tiles, shared.told)) return;
    const double all = sum_of_parts(block, args.parts, args.tiles, shared.sums);
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      *args.smallest = bits_as<float>(kth);
      *args.squares = all;
    });
  }
};

struct SplitArgs {
  std::uint32_t* indices;
  float* values;
  std::size_t count;
  float threshold;
  std::uint32_t* lower_indices;
  float* lower_values;
  std::size_t* kept;
  std::size_t* lower;
  TileState* state;
  std::uint64_t tiles;
};

// Partitions a list by a threshold: pairs of at least that magnitude stay, in place; the others go
// to a second list.
struct Split {
  using Args = SplitArgs;
  static constexpr unsigned threads = 256, items = 4;
  static constexpr std::size_t tile_elements = std::size_t{threads} * items;
  using Shared = KeepLargest::Shared;

  PITH_DEVICE static bool keeps(const Args& args, float value) {
    return bits_as<float>(magnitude_of(value)) >= args.threshold;
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const std::uint64_t tile = take_tile(block, args.state, shared.told);
    const std::size_t begin = tile * tile_elements;
    typename Block::template PerThread<KeepLargest::Pairs> pairs;
    typename Block::template PerThread<std::uint64_t> counts;
    block.each([&](unsigned thread) {
      counts[thread] = 0;
      PITH_UNROLL
      for (unsigned i = 0; i < items; ++i) {
        const std::size_t at = begin + thread * items + i;
        pairs[thread].indices[i] = at < args.count ? args.indices[at] : 0;
        pairs[thread].values[i] = at < args.count ? args.values[at] : 0.0f;
        counts[thread] += at < args.count && keeps(args, pairs[thread].values[i]) ? 1 : 0;
      }
    });
    const std::uint64_t own = block.exclusive_sum(counts, shared.sums);
    const std::uint64_t before = sum_before<true>(block, args.state, tile, own, shared.told);
    block.each([&](unsigned thread) {
      std::uint64_t kept = before + counts[thread];
      PITH_UNROLL
      for (unsigned i = 0; i < items; ++i) {
        const std::size_t at = begin + thread * items + i;
        if (at >= args.count) continue;
        const bool keep = keeps(args, pairs[thread].values[i]);
        const std::uint64_t place = keep ? kept : at - kept;
        (keep ? args.indices : args.lower_indices)[place] = pairs[thread].indices[i];
        (keep ? args.values : args.lower_values)[place] = pairs[thread].values[i];
        kept += keep ? 1 : 0;
      }
    });
    if (tile + 1 != args.tiles) return;
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      *args.kept = before + own;
      *args.lower = args.count - before - own;
    });
  }
};

}  // namespace pith::cuda

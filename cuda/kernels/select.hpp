// Accumulate and select: adds gradient and residual, applies the threshold, and writes the list and
// the new residual in one pass. It reads 8 bytes per element and writes 4 (float32 gradient).
//
// A tile is 4,096 elements in registers. The new residual is written before the look-back tells the
// tile's position in the list; elements for which the list has no room, which is rare, are then
// added back.
//
// Draws are a selection with a threshold for every element, from an accumulator that has the
// gradient; there is room for all elements.
#pragma once

#include "cuda/kernels/draws.hpp"
#include "cuda/kernels/numbers.hpp"
#include "cuda/kernels/ordered_tiles.hpp"

namespace pith::cuda {

// As PassResult of core/sparse_kernel_args.hpp.
struct PassTotals {
  std::uint64_t selected;
  std::uint64_t nonfinite;
  double squares;
};

struct SelectArgs {
  float* accumulator;
  const std::byte* gradient;  // or null
  std::size_t count;
  PassTotals* result;
  TileState* state;
  double* parts;        // sums of squares, one per tile
  std::uint64_t tiles;  // also the number of blocks
  std::size_t capacity;
  std::uint32_t* indices;
  float* values;
  std::uint32_t cut;    // smallest bits of a magnitude that passes
  std::uint32_t first;  // index of the first element
  std::uint32_t skew;   // elements by which the accumulator misses 16-byte alignment
  bool fresh;           // the accumulator counts as zero
};

struct DrawArgs : SelectArgs {
  std::uint64_t key;
  float sure;  // magnitude from which on elements are certain to be drawn
};

// The gradient's type if there is no gradient.
struct NoGradient {
  std::uint8_t none;
};

template <class Gradient, bool kSelect, bool kDraws = false>
struct Select {
  using Args = std::conditional_t<kDraws, DrawArgs, SelectArgs>;
  static constexpr unsigned threads = 256;
  static constexpr unsigned packs = 4, lanes = 4;
  static constexpr std::size_t tile_elements = std::size_t{threads} * packs * lanes;
  static constexpr bool adds = !std::is_same_v<Gradient, NoGradient>;
  struct Shared {
    WarpSums sums;
    std::uint64_t told;
  };
  struct Items {
    float sum[packs][lanes];
    std::uint32_t passes;  // one bit per element
  };
  using Floats = Pack<float, lanes>;
  using Gradients = Pack<Gradient, lanes>;

  // A thread's findings.
  struct Found {
    std::uint64_t counts = 0;  // of passing elements: 16 bits per pack
    std::uint64_t nonfinite = 0;
    double squares = 0;
  };

  // Draws one element; returns what stays in the accumulator.
  PITH_DEVICE static float draw(const DrawArgs& args, float value, std::uint32_t index, float& sent,
                                bool& passes) {
    const std::uint32_t steps = (drawn_bits(args.key, index) >> 8) + 1;
    const float drawn = static_cast<float>(steps) * (1.0f / (1 << 24));
    const float size = bits_as<float>(magnitude_of(value));
    passes = size >= drawn * args.sure;
    if (!passes) return value;
    const std::uint32_t sign = bits_as<std::uint32_t>(value) & 0x80000000u;
    const float most = size >= args.sure ? size : args.sure;
    sent = bits_as<float>(bits_as<std::uint32_t>(most) | sign);
    return value - sent;
  }

  // Handles one element, the i-th of the range; returns what stays in the accumulator.
  PITH_DEVICE static float take(const Args& args, std::size_t i, float old, Gradient gradient,
                                unsigned u, unsigned lane, Items& items, Found& found) {
    float sum = args.fresh ? 0.0f : old;
    const float kept = sum;
    if constexpr (adds) sum += widen(gradient);
    items.sum[u][lane] = sum;
    const std::uint32_t magnitude = magnitude_of(sum);
    if (magnitude >= float_infinity) {
      ++found.nonfinite;
      return adds ? kept : 0.0f;
    }
    found.squares += static_cast<double>(sum) * static_cast<double>(sum);
    float left = 0;
    if constexpr (kDraws) {
      bool passes = false;
      const auto index = args.first + static_cast<std::uint32_t>(i);
      left = draw(args, sum, index, items.sum[u][lane], passes);
      if (!passes) return left;
    } else {
      if (!kSelect || magnitude < args.cut) return sum;
    }
    items.passes |= 1u << (u * lanes + lane);
    found.counts += std::uint64_t{1} << (16 * u);
    return left;
  }

  // Handles the packs of one thread, with all loads before the first use.
  PITH_DEVICE static Found take_all(const Args& args, std::size_t begin, unsigned thread,
                                    Items& items) {
    const std::size_t end = args.skew + args.count;
    auto* const accumulator = reinterpret_cast<std::byte*>(args.accumulator - args.skew);
    const std::byte* const gradient = adds ? args.gradient - args.skew * sizeof(Gradient) : nullptr;
    const bool in_packs = misalignment(gradient, sizeof(Gradients)) == 0;
    const bool aligned = misalignment(gradient, sizeof(Gradient)) == 0;
    Floats old[packs] = {};
    Gradients added[packs] = {};
    PITH_UNROLL
    for (unsigned u = 0; u < packs; ++u) {
      const std::size_t at = begin + (std::size_t{u} * threads + thread) * lanes;
      const bool whole = at >= args.skew && at + lanes <= end;
      if (whole && !args.fresh) old[u] = load_pack<float, lanes>(accumulator + at * sizeof(float));
      if constexpr (adds) {
        if (whole && in_packs) {
          added[u] = load_pack<Gradient, lanes>(gradient + at * sizeof(Gradient));
          continue;
        }
      }
      PITH_UNROLL
      for (unsigned lane = 0; lane < lanes; ++lane) {
        const std::size_t i = at + lane;
        if (i < args.skew || i >= end) continue;
        if (!whole && !args.fresh) old[u].lane[lane] = args.accumulator[i - args.skew];
        if constexpr (adds) {
          added[u].lane[lane] = load_element<Gradient>(args.gradient, i - args.skew, aligned);
        }
      }
    }
    Found found;
    items.passes = 0;
    PITH_UNROLL
    for (unsigned u = 0; u < packs; ++u) {
      const std::size_t at = begin + (std::size_t{u} * threads + thread) * lanes;
      if (at >= args.skew && at + lanes <= end) {
        Floats left;
        PITH_UNROLL
        for (unsigned lane = 0; lane < lanes; ++lane) {
          left.lane[lane] = take(args, at + lane - args.skew, old[u].lane[lane],
                                 added[u].lane[lane], u, lane, items, found);
        }
        store_pack(accumulator + at * sizeof(float), left);
        continue;
      }
      PITH_UNROLL
      for (unsigned lane = 0; lane < lanes; ++lane) {
        const std::size_t i = at + lane;
        if (i < args.skew || i >= end) continue;
        args.accumulator[i - args.skew] = take(args, i - args.skew, old[u].lane[lane],
                                               added[u].lane[lane], u, lane, items, found);
      }
    }
    return found;
  }

  // Writes a thread's passing elements to the list. `place`: position of the first one of each
  // pack.
  PITH_DEVICE static void list(const Args& args, std::size_t begin, unsigned thread,
                               const Items& items, std::uint64_t before,
                               std::uint64_t counts_before, std::uint64_t totals) {
    if (items.passes == 0) return;
    PITH_UNROLL
    for (unsigned u = 0; u < packs; ++u) {
      std::uint64_t place = before + (counts_before >> (16 * u) & 0xffffu);
      before += totals >> (16 * u) & 0xffffu;
      PITH_UNROLL
      for (unsigned lane = 0; lane < lanes; ++lane) {
        if ((items.passes >> (u * lanes + lane) & 1u) == 0) continue;
        const std::size_t i =
            begin + (std::size_t{u} * threads + thread) * lanes + lane - args.skew;
        if (place < args.capacity) {
          args.indices[place] = args.first + static_cast<std::uint32_t>(i);
          args.values[place] = items.sum[u][lane];
        } else {
          args.accumulator[i] = items.sum[u][lane];
        }
        ++place;
      }
    }
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const std::uint64_t tile = take_tile(block, args.state, shared.told);
    const std::size_t begin = tile * tile_elements;
    typename Block::template PerThread<Items> items;
    typename Block::template PerThread<std::uint64_t> counts;
    typename Block::template PerThread<double> squares;
    block.each([&](unsigned thread) {
      const Found found = take_all(args, begin, thread, items[thread]);
      counts[thread] = found.counts;
      squares[thread] = found.squares;
      if (found.nonfinite != 0) add_global(&args.state->nonfinite, found.nonfinite);
    });
    if constexpr (kSelect) {
      const std::uint64_t totals = block.exclusive_sum(counts, shared.sums);
      std::uint64_t own = 0;
      for (unsigned u = 0; u < packs; ++u) own += totals >> (16 * u) & 0xffffu;
      const std::uint64_t before = sum_before(block, args.state, tile, own, shared.told);
      block.each([&](unsigned thread) {
        list(args, begin, thread, items[thread], before, counts[thread], totals);
      });
    }
    leave_part(block, args.parts, tile, squares, shared.sums);
    if (!ends_last(block, args.state, args.tiles, shared.told)) return;
    const double all = sum_of_parts(block, args.parts, args.tiles, shared.sums);
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      const std::uint64_t selected =
          kSelect ? load_fresh(&args.state->states[args.tiles - 1]) & sum_mask : 0;
      *args.result = {selected, load_fresh(&args.state->nonfinite), all};
    });
  }
};

}  // namespace pith::cuda

// The histogram of magnitudes, deterministic in spite of atomics: all numbers of a bin have the
// same exponent, so their squares are 48-bit integers times one power of two, and integer sums do
// not depend on the order.
#pragma once

#include "cuda/kernels/numbers.hpp"
#include "cuda/kernels/ordered_tiles.hpp"

namespace pith::cuda {

inline constexpr unsigned magnitude_bins = 4096;
inline constexpr unsigned magnitude_shift = 19;

// Sums over the launch; zero before it.
struct MagnitudeSums {
  std::uint64_t counts[magnitude_bins];
  std::uint64_t low[magnitude_bins];   // sums of the low 32 bits of squares
  std::uint64_t high[magnitude_bins];  // of the high bits
};

struct HistogramArgs {
  const float* accumulator;
  const std::byte* gradient;  // added, if not null
  std::size_t count;
  MagnitudeSums* sums;
  bool fresh;
};

template <class Gradient>
struct CountMagnitudes {
  using Args = HistogramArgs;
  static constexpr unsigned threads = 256;
  // 2^16 squares of less than 2^48 fit into 64 bits.
  static constexpr std::size_t block_elements = std::size_t{1} << 16;
  static constexpr bool adds = sizeof(Gradient) > 1;
  struct Shared {
    std::uint64_t squares[magnitude_bins];
    std::uint32_t counts[magnitude_bins];
  };

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    block.each([&](unsigned thread) {
      for (unsigned bin = thread; bin < magnitude_bins; bin += threads) {
        shared.squares[bin] = 0;
        shared.counts[bin] = 0;
      }
    });
    block.sync();
    const std::size_t begin = block.index() * block_elements;
    const std::size_t end = smaller(begin + block_elements, args.count);
    const bool aligned = misalignment(args.gradient, sizeof(Gradient)) == 0;
    block.each([&](unsigned thread) {
      for (std::size_t i = begin + thread; i < end; i += threads) {
        float sum = args.fresh ? 0.0f : args.accumulator[i];
        if constexpr (adds) sum += widen(load_element<Gradient>(args.gradient, i, aligned));
        const std::uint32_t magnitude = magnitude_of(sum);
        if (magnitude >= float_infinity) continue;
        const std::uint64_t significand =
            (magnitude & 0x7fffffu) | (magnitude >> 23 != 0 ? 0x800000u : 0u);
        const std::uint32_t bin = magnitude >> magnitude_shift;
        add_shared(&shared.counts[bin], 1);
        add_shared(&shared.squares[bin], significand * significand);
      }
    });
    block.sync();
    block.each([&](unsigned thread) {
      for (unsigned bin = thread; bin < magnitude_bins; bin += threads) {
        if (shared.counts[bin] == 0) continue;
        add_global(&args.sums->counts[bin], shared.counts[bin]);
        add_global(&args.sums->low[bin], shared.squares[bin] & 0xffffffffu);
        add_global(&args.sums->high[bin], shared.squares[bin] >> 32);
      }
    });
  }
};

struct AddHistogramArgs {
  const MagnitudeSums* sums;
  std::uint64_t* counts;
  double* squares;
};

// One thread per bin.
struct AddHistogram {
  using Args = AddHistogramArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    block.each([&](unsigned thread) {
      const unsigned bin = block.index() * threads + thread;
      if (args.sums->counts[bin] == 0) return;
      const unsigned field = bin >> 4;
      const int exponent = 2 * (static_cast<int>(larger(field, 1u)) - 150);
      const auto scale = bits_as<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
      const double sum = static_cast<double>(args.sums->high[bin]) * 4294967296.0 +
                         static_cast<double>(args.sums->low[bin]);
      args.counts[bin] += args.sums->counts[bin];
      args.squares[bin] += sum * scale;
    });
  }
};

}  // namespace pith::cuda

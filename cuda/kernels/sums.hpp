// Sums of values and of lists, and results: SumValues, SumLists, Scatter, Convert, Fill.
//
// Lists are summed by slices of the vector, one per block, in shared memory: list by list in order,
// so that sums have a fixed order and no element is written twice.
#pragma once

#include "cuda/kernels/numbers.hpp"
#include "cuda/kernels/ordered_tiles.hpp"

namespace pith::cuda {

inline constexpr std::size_t slice_elements = 4096;

PITH_DEVICE float load_value(const std::byte* values, std::size_t i, DType type) {
  if (type == DType::f32) {
    return load_element<float>(values, i, misalignment(values, sizeof(float)) == 0);
  }
  const auto code = load_element<std::uint16_t>(values, i, misalignment(values, 2) == 0);
  return type == DType::bf16 ? decode(Bfloat{code}) : decode(Half{code});
}

// Host arrays travel to the device as arguments of small launches before the kernel.
struct StoreWordsArgs {
  static constexpr unsigned most = 480;
  std::uint64_t* out;
  std::uint64_t count;
  std::uint64_t words[most];
};

struct StoreWords {
  using Args = StoreWordsArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    block.each([&](unsigned thread) {
      for (unsigned i = thread; i < args.count; i += threads) args.out[i] = args.words[i];
    });
  }
};

struct SumValuesArgs {
  std::byte* out;
  const std::byte* const* in;
  std::size_t n;
  std::size_t count;
  float* accumulator;  // or null
  const std::uint32_t* indices;
};

template <class T>
struct SumValues {
  using Args = SumValuesArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const std::size_t all = std::size_t{block.count()} * threads;
    block.each([&](unsigned thread) {
      for (std::size_t i = std::size_t{block.index()} * threads + thread; i < args.count;
           i += all) {
        float sum = 0;
        for (std::size_t k = 0; k < args.n; ++k) {
          const bool aligned = misalignment(args.in[k], sizeof(T)) == 0;
          const float value = widen(load_element<T>(args.in[k], i, aligned));
          sum = k == 0 ? value : sum + value;
        }
        const T rounded = to_value<T>(sum);
        store_element(args.out, i, rounded, misalignment(args.out, sizeof(T)) == 0);
        if constexpr (is_narrow<T>) {
          const float lost = sum - widen(rounded);
          if (args.accumulator && magnitude_of(lost) < float_infinity) {
            args.accumulator[args.indices[i]] += lost;
          }
        }
      }
    });
  }
};

// As SparseList of core/sparse_kernel_args.hpp.
struct ListView {
  const std::uint32_t* indices;
  const std::byte* values;
  std::size_t count;
};

struct SumListsArgs {
  const ListView* lists;
  std::size_t n;
  std::size_t span;
  std::uint32_t* indices;
  float* values;
  std::size_t* count;
  TileState* state;
  std::uint64_t tiles;
  std::uint32_t first;
  DType type;
};

struct SumLists {
  using Args = SumListsArgs;
  static constexpr unsigned threads = 256;
  static constexpr unsigned own_elements = slice_elements / threads;  // half a word of `touched`
  static_assert(own_elements == 16);
  struct Shared {
    WarpSums sums;
    std::uint64_t told;
    float values[slice_elements];
    std::uint32_t touched[slice_elements / 32];
    std::size_t begin[threads];  // positions in some lists, within the slice
    std::size_t end[threads];
  };

  template <class Block>
  PITH_KERNEL static void add(const Block& block, const Args& args, const ListView& list,
                              std::size_t begin, std::size_t end, std::uint32_t first,
                              Shared& shared) {
    block.each([&](unsigned thread) {
      for (std::size_t i = begin + thread; i < end; i += threads) {
        const std::uint32_t at = list.indices[i] - first;
        const std::uint32_t bit = 1u << (at % 32);
        const float value = load_value(list.values, i, args.type);
        // The first value is stored, not added: a sum of one value keeps the sign of a zero.
        const bool there = (load_shared(&shared.touched[at / 32]) & bit) != 0;
        shared.values[at] = there ? shared.values[at] + value : value;
        if (!there) or_shared(&shared.touched[at / 32], bit);
      }
    });
    block.sync();
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const std::uint64_t tile = take_tile(block, args.state, shared.told);
    const std::size_t offset = tile * slice_elements;
    const std::size_t behind = smaller(offset + slice_elements, args.span);
    const auto first = static_cast<std::uint32_t>(args.first + offset);
    block.each([&](unsigned thread) {
      if (thread < slice_elements / 32) shared.touched[thread] = 0;
    });
    for (std::size_t base = 0; base < args.n; base += threads) {
      block.sync();
      block.each([&](unsigned thread) {
        if (base + thread >= args.n) return;
        const ListView& list = args.lists[base + thread];
        shared.begin[thread] = place_of_index(list.indices, list.count, args.first + offset);
        shared.end[thread] = place_of_index(list.indices, list.count, args.first + behind);
      });
      block.sync();
      const std::size_t here = smaller(args.n - base, std::size_t{threads});
      for (std::size_t l = 0; l < here; ++l) {
        if (shared.begin[l] == shared.end[l]) continue;
        add(block, args, args.lists[base + l], shared.begin[l], shared.end[l], first, shared);
      }
    }
    block.sync();
    typename Block::template PerThread<std::uint64_t> counts;
    const auto bits_of = [&](unsigned thread) {
      return shared.touched[thread / 2] >> (thread % 2 * own_elements) & 0xffffu;
    };
    block.each([&](unsigned thread) { counts[thread] = bits_set(bits_of(thread)); });
    const std::uint64_t own = block.exclusive_sum(counts, shared.sums);
    const std::uint64_t before = sum_before(block, args.state, tile, own, shared.told);
    block.each([&](unsigned thread) {
      std::uint64_t place = before + counts[thread];
      for (std::uint32_t bits = bits_of(thread); bits != 0; bits &= bits - 1) {
        const unsigned at = thread * own_elements + lowest_bit(bits);
        args.indices[place] = first + at;
        args.values[place++] = shared.values[at];
      }
      if (thread == 0 && tile + 1 == args.tiles) *args.count = before + own;
    });
  }
};

struct ScatterArgs {
  std::byte* out;
  const std::uint32_t* indices;
  const std::byte* values;
  std::size_t count;
  std::size_t span;
  std::uint32_t first;
  float divisor;
  DType value_type;
};

// values[i] / divisor at the indices, zero elsewhere; one slice per block, written once.
template <class T>
struct Scatter {
  using Args = ScatterArgs;
  static constexpr unsigned threads = 256;
  static constexpr unsigned lanes = words_bytes / sizeof(T);
  struct Shared {
    alignas(16) T slice[slice_elements];
    std::size_t begin, end;
  };

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const std::size_t offset = block.index() * slice_elements;
    const std::size_t length = smaller(slice_elements, args.span - offset);
    block.each([&](unsigned thread) {
      for (std::size_t i = thread; i < slice_elements; i += threads) shared.slice[i] = T{};
      // Two warps search at the same time: each search is a chain of dependent loads.
      const std::uint64_t from = args.first + offset;
      if (thread == 0) shared.begin = place_of_index(args.indices, args.count, from);
      if (thread == 32) shared.end = place_of_index(args.indices, args.count, from + length);
    });
    block.sync();
    const auto first = static_cast<std::uint32_t>(args.first + offset);
    block.each([&](unsigned thread) {
      for (std::size_t i = shared.begin + thread; i < shared.end; i += threads) {
        const float value = load_value(args.values, i, args.value_type) / args.divisor;
        shared.slice[args.indices[i] - first] = narrow<T>(value);
      }
    });
    block.sync();
    std::byte* const out = args.out + offset * sizeof(T);
    const bool aligned = misalignment(out, sizeof(T)) == 0;
    const std::size_t packs = misalignment(out, words_bytes) == 0 ? length / lanes : 0;
    block.each([&](unsigned thread) {
      for (std::size_t i = thread; i < packs; i += threads) {
        Pack<T, lanes> pack;
        memcpy(&pack, &shared.slice[i * lanes], sizeof pack);
        store_pack(out + i * words_bytes, pack);
      }
      for (std::size_t i = packs * lanes + thread; i < length; i += threads) {
        store_element(out, i, shared.slice[i], aligned);
      }
    });
  }
};

struct ConvertArgs {
  std::byte* out;
  const std::byte* in;
  std::size_t count;
  float divisor;
  DType in_type;
};

// out[i] = in[i] / divisor; without input all elements become NaN.
template <class T>
struct Convert {
  using Args = ConvertArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const std::size_t all = std::size_t{block.count()} * threads;
    const bool aligned = misalignment(args.out, sizeof(T)) == 0;
    block.each([&](unsigned thread) {
      for (std::size_t i = std::size_t{block.index()} * threads + thread; i < args.count;
           i += all) {
        const float value = args.in ? load_value(args.in, i, args.in_type) / args.divisor
                                    : bits_as<float>(std::uint32_t{0x7fffffff});
        store_element(args.out, i, narrow<T>(value), aligned);
      }
    });
  }
};

}  // namespace pith::cuda

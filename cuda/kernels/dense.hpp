// Dense kernels: reduce, scale, divide, copy, cast; one launch per call. The grid advances in steps
// of a few packs per thread, all loaded before the first is used. Elements before the first and
// behind the last whole pack of the output go one per thread. An input that is aligned differently
// from the output (modulo 16 bytes) is also read by whole words, two of which are joined to a pack.
// Outputs with different alignments, and casts, go element by element.
#pragma once

#include "cuda/kernels/block.hpp"
#include "cuda/kernels/numbers.hpp"

namespace pith::cuda {

inline constexpr unsigned dense_threads = 256;
inline constexpr unsigned unrolled = 4;
// With arithmetic on every byte of a pack two are as fast, in half the code.
template <class T>
inline constexpr unsigned unrolled_for = sizeof(T) == 1 ? unrolled / 2 : unrolled;

struct NoShared {};

// The most that a block handles in one step; a launch needs no more blocks than steps.
inline constexpr std::size_t step_bytes = std::size_t{dense_threads} * unrolled * words_bytes;

// The whole packs of an array and the elements before them.
struct Packs {
  std::size_t head;   // elements before the first whole pack
  std::size_t packs;  // number of whole packs
};
PITH_DEVICE Packs packs_of(const void* memory, std::size_t count, std::size_t element,
                           std::size_t lanes) {
  const std::size_t bytes = lanes * element;
  const std::size_t into = misalignment(memory, bytes);
  const std::size_t before = into == 0 ? 0 : (bytes - into) / element;
  if (before >= count) return {count, 0};
  return {before, (count - before) / lanes};
}

// Calls `take_packs(first, stride)` for each thread's packs of a step, and `take_element(i)` for
// each element outside.
template <unsigned kUnrolled, class Block, class TakePacks, class TakeElement>
PITH_KERNEL void walk(const Block& block, Packs range, std::size_t lanes, std::size_t count,
                      TakePacks take_packs, TakeElement take_element) {
  const std::size_t step = std::size_t{Block::threads} * kUnrolled;
  for (std::size_t at = block.index() * step; at < range.packs; at += block.count() * step) {
    block.each([&](unsigned thread) { take_packs(at + thread, std::size_t{Block::threads}); });
  }
  const std::size_t tail = range.head + range.packs * lanes;
  const std::size_t outside = range.head + (count - tail);
  const std::size_t all = std::size_t{block.count()} * Block::threads;
  block.each([&](unsigned thread) {
    const std::size_t own = std::size_t{block.index()} * Block::threads + thread;
    for (std::size_t i = own; i < outside; i += all) {
      take_element(i < range.head ? i : tail + (i - range.head));
    }
  });
}

// The packs of the first output if all outputs are aligned alike. Joined words of a differently
// aligned input hold bytes beside its packs; the first and last pack are then left to elements, so
// that nothing outside the array is read.
template <class T>
PITH_DEVICE Packs packs_of(const std::byte* const* in, unsigned inputs, std::byte* const* out,
                           unsigned outputs, std::size_t count) {
  constexpr unsigned lanes = words_bytes / sizeof(T);
  const std::size_t into = misalignment(out[0], words_bytes);
  bool congruent = into % sizeof(T) == 0;
  for (unsigned o = 1; o < outputs; ++o) {
    congruent = congruent && misalignment(out[o], words_bytes) == into;
  }
  if (!congruent) return {0, 0};
  const Packs range = packs_of(out[0], count, sizeof(T), lanes);
  bool shifted = false;
  for (unsigned k = 0; k < inputs; ++k) {
    shifted = shifted || misalignment(in[k], words_bytes) != into;
  }
  if (!shifted) return range;
  if (range.packs <= 2) return {0, 0};
  return {range.head + lanes, range.packs - 2};
}

// Loads a thread's packs of one step from packs that begin at `from`, which need not be aligned.
template <class T, unsigned kLanes, unsigned kUnrolled>
PITH_DEVICE void load_packs(Pack<T, kLanes> (&to)[kUnrolled], const std::byte* from, std::size_t at,
                            std::size_t stride, std::size_t packs) {
  const auto shift = static_cast<unsigned>(misalignment(from, words_bytes));
  if (shift == 0) {
    PITH_UNROLL
    for (unsigned u = 0; u < kUnrolled; ++u, at += stride) {
      if (at < packs) to[u] = load_pack<T, kLanes>(from + at * words_bytes);
    }
    return;
  }
  const std::byte* const words = from - shift;
  PITH_UNROLL
  for (unsigned u = 0; u < kUnrolled; ++u, at += stride) {
    if (at >= packs) continue;
    const auto low = load_pack<std::uint32_t, 4>(words + at * words_bytes);
    const auto high = load_pack<std::uint32_t, 4>(words + (at + 1) * words_bytes);
    to[u] = bits_as<Pack<T, kLanes>>(join(low, high, shift));
  }
}

struct MapArgs {
  std::byte* out;
  const std::byte* in;
  std::size_t count;
  std::uint64_t bits[2];   // scale: the factor, if `where` is null
  const std::byte* where;  // scale: address of the factor
  float divisor;           // divide
};

// out[i] = f(in[i]).
template <class T, unsigned kUnrolled = unrolled_for<T>, class Block, class Function>
PITH_KERNEL void map_array(const Block& block, const MapArgs& args, Function f) {
  constexpr unsigned lanes = words_bytes / sizeof(T);
  const bool aligned = misalignment(args.out, sizeof(T)) + misalignment(args.in, sizeof(T)) == 0;
  const Packs range = packs_of<T>(&args.in, 1, &args.out, 1, args.count);
  const std::byte* const in = args.in + range.head * sizeof(T);
  std::byte* const out = args.out + range.head * sizeof(T);
  const auto take_packs = [&](std::size_t first, std::size_t stride) {
    Pack<T, lanes> taken[kUnrolled] = {};
    load_packs(taken, in, first, stride, range.packs);
    PITH_UNROLL
    for (unsigned u = 0; u < kUnrolled; ++u) {
      const std::size_t at = first + u * stride;
      if (at >= range.packs) continue;
      PITH_UNROLL
      for (unsigned lane = 0; lane < lanes; ++lane) taken[u].lane[lane] = f(taken[u].lane[lane]);
      store_pack(out + at * words_bytes, taken[u]);
    }
  };
  const auto take_element = [&](std::size_t i) {
    store_element(args.out, i, f(load_element<T>(args.in, i, aligned)), aligned);
  };
  walk<kUnrolled>(block, range, lanes, args.count, take_packs, take_element);
}

inline constexpr unsigned most_operands = 32;

struct ReduceArgs {
  std::size_t count;
  std::uint32_t inputs;   // at least one
  std::uint32_t outputs;  // at least one
  float divisor;          // divides the finished sum; 0: no division
  const std::byte* in[most_operands];
  std::byte* out[most_operands];  // each may be an input
};

// out[...][i] = op(op(in[0][i], in[1][i]), in[2][i])..., rounded to the type after every input.
template <class T, Op kOp>
struct Reduce {
  using Args = ReduceArgs;
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  static constexpr unsigned lanes = words_bytes / sizeof(T);
  static constexpr unsigned steps = unrolled_for<T>;

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const Packs range = packs_of<T>(args.in, args.inputs, args.out, args.outputs, args.count);
    const auto take_packs = [&](std::size_t first, std::size_t stride) {
      reduce_packs(args, range, first, stride);
    };
    const bool aligned = is_aligned(args);
    const auto take_element = [&](std::size_t i) {
      aligned ? reduce_element<8>(args, i, true) : reduce_element<1>(args, i, false);
    };
    walk<steps>(block, range, lanes, args.count, take_packs, take_element);
  }

 private:
  // The next input is loaded while one is being added.
  PITH_DEVICE static void reduce_packs(const Args& args, Packs range, std::size_t first,
                                       std::size_t stride) {
    const std::size_t head = range.head * sizeof(T);
    Pack<T, lanes> result[steps] = {};
    Pack<T, lanes> next[steps] = {};
    load_packs(next, args.in[0] + head, first, stride, range.packs);
    for (unsigned k = 0; k < args.inputs; ++k) {
      Pack<T, lanes> taken[steps];
      PITH_UNROLL
      for (unsigned u = 0; u < steps; ++u) taken[u] = next[u];
      if (k + 1 < args.inputs) load_packs(next, args.in[k + 1] + head, first, stride, range.packs);
      if (k == 0) {
        PITH_UNROLL
        for (unsigned u = 0; u < steps; ++u) result[u] = taken[u];
        continue;
      }
      PITH_UNROLL
      for (unsigned u = 0; u < steps; ++u) {
        if (first + u * stride >= range.packs) continue;
        PITH_UNROLL
        for (unsigned lane = 0; lane < lanes; ++lane) {
          result[u].lane[lane] = combine<kOp>(result[u].lane[lane], taken[u].lane[lane]);
        }
      }
    }
    if constexpr (kOp == Op::sum) {
      if (args.divisor != 0) divide_all(result, args.divisor);
    }
    PITH_UNROLL
    for (unsigned u = 0; u < steps; ++u) {
      const std::size_t at = first + u * stride;
      if (at >= range.packs) continue;
      for (unsigned o = 0; o < args.outputs; ++o) {
        store_pack(args.out[o] + head + at * words_bytes, result[u]);
      }
    }
  }

  // Loads several inputs at once: a short vector consists of such elements only.
  template <unsigned kAtOnce>
  PITH_DEVICE static void reduce_element(const Args& args, std::size_t i, bool aligned) {
    T result = load_element<T>(args.in[0], i, aligned);
    for (unsigned first = 1; first < args.inputs; first += kAtOnce) {
      T taken[kAtOnce] = {};
      PITH_UNROLL
      for (unsigned k = 0; k < kAtOnce; ++k) {
        if (first + k < args.inputs) taken[k] = load_element<T>(args.in[first + k], i, aligned);
      }
      PITH_UNROLL
      for (unsigned k = 0; k < kAtOnce; ++k) {
        if (first + k < args.inputs) result = combine<kOp>(result, taken[k]);
      }
    }
    if constexpr (kOp == Op::sum) {
      if (args.divisor != 0) result = divide(result, args.divisor);
    }
    for (unsigned o = 0; o < args.outputs; ++o) store_element(args.out[o], i, result, aligned);
  }

  PITH_DEVICE static void divide_all(Pack<T, lanes> (&packs)[steps], float divisor) {
    PITH_UNROLL
    for (Pack<T, lanes>& pack : packs) {
      PITH_UNROLL
      for (T& value : pack.lane) value = divide(value, divisor);
    }
  }

  PITH_DEVICE static bool is_aligned(const Args& args) {
    std::size_t off = 0;
    for (unsigned k = 0; k < args.inputs; ++k) off += misalignment(args.in[k], sizeof(T));
    for (unsigned o = 0; o < args.outputs; ++o) off += misalignment(args.out[o], sizeof(T));
    return off == 0;
  }
};

// out[i] = in[i] * factor.
template <class T>
struct Scale {
  using Args = MapArgs;
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    T factor;
    if (args.where) {
      factor = load_element<T>(args.where, 0, misalignment(args.where, sizeof(T)) == 0);
    } else {
      memcpy(&factor, &args.bits, sizeof factor);
    }
    map_array<T>(block, args, [&](T value) { return combine<Op::prod>(value, factor); });
  }
};

// out[i] = in[i] / divisor.
template <class T>
struct Divide {
  using Args = MapArgs;
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    map_array<T>(block, args, [&](T value) { return divide(value, args.divisor); });
  }
};

struct Copy {
  using Args = MapArgs;  // `count` in bytes
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    using Byte = std::uint8_t;
    map_array<Byte, unrolled>(block, args, [](Byte value) { return value; });
  }
};

struct FillArgs {
  std::byte* out;
  std::size_t bytes;
  std::uint8_t value;
};

struct Fill {
  using Args = FillArgs;
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    constexpr unsigned lanes = words_bytes;
    const Packs range = packs_of(args.out, args.bytes, 1, lanes);
    Pack<std::uint8_t, lanes> pack;
    for (std::uint8_t& lane : pack.lane) lane = args.value;
    const auto take_packs = [&](std::size_t first, std::size_t stride) {
      PITH_UNROLL
      for (unsigned u = 0; u < unrolled; ++u) {
        const std::size_t at = first + u * stride;
        if (at < range.packs) store_pack(args.out + range.head + at * lanes, pack);
      }
    };
    const auto take_element = [&](std::size_t i) { store_element(args.out, i, args.value, true); };
    walk<unrolled>(block, range, lanes, args.bytes, take_packs, take_element);
  }
};

struct CastArgs {
  std::byte* out;
  const std::byte* in;
  std::size_t count;
};

template <class To, class From>
struct Cast {
  using Args = CastArgs;
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  static constexpr unsigned widest = sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From);
  static constexpr unsigned lanes = words_bytes / widest;

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const bool out_aligned = misalignment(args.out, sizeof(To)) == 0;
    const bool in_aligned = misalignment(args.in, sizeof(From)) == 0;
    Packs range{0, 0};
    if (out_aligned && in_aligned) {
      range = packs_of(args.out, args.count, sizeof(To), lanes);
      const std::byte* const in = args.in + range.head * sizeof(From);
      if (misalignment(in, lanes * sizeof(From)) != 0) range = {0, 0};
    }
    const std::byte* const in = args.in + range.head * sizeof(From);
    std::byte* const out = args.out + range.head * sizeof(To);
    const auto take_packs = [&](std::size_t first, std::size_t stride) {
      Pack<From, lanes> from[unrolled] = {};
      PITH_UNROLL
      for (unsigned u = 0; u < unrolled; ++u) {
        const std::size_t at = first + u * stride;
        if (at < range.packs) from[u] = load_pack<From, lanes>(in + at * lanes * sizeof(From));
      }
      PITH_UNROLL
      for (unsigned u = 0; u < unrolled; ++u) {
        const std::size_t at = first + u * stride;
        if (at >= range.packs) continue;
        Pack<To, lanes> to;
        PITH_UNROLL
        for (unsigned lane = 0; lane < lanes; ++lane) {
          to.lane[lane] = convert<To>(from[u].lane[lane]);
        }
        store_pack(out + at * lanes * sizeof(To), to);
      }
    };
    const auto take_element = [&](std::size_t i) {
      store_element(args.out, i, convert<To>(load_element<From>(args.in, i, in_aligned)),
                    out_aligned);
    };
    walk<unrolled>(block, range, lanes, args.count, take_packs, take_element);
  }
};

}  // namespace pith::cuda

// Dense kernels: reduce, scale, divide, copy, cast. One launch a call: the grid walks in steps of
// `unrolled` packs a thread, all loaded before the first is used; what lies before the first and
// behind the last whole pack goes one element a thread. Arrays whose addresses differ modulo 16
// bytes go element by element throughout.
#pragma once

#include "cuda/kernels/block.hpp"
#include "cuda/kernels/numbers.hpp"

namespace pith::cuda {

inline constexpr unsigned dense_threads = 256;
inline constexpr unsigned unrolled = 4;

struct NoShared {};

// Packs of `bytes` that a block takes in one step; a launch needs no more blocks than steps.
inline constexpr std::size_t step_bytes = std::size_t{dense_threads} * unrolled * words_bytes;

// The whole packs of an array between its edges.
struct Packs {
  std::size_t head;   // elements before
  std::size_t packs;  // whole ones
};
PITH_DEVICE Packs packs_of(const void* memory, std::size_t count, std::size_t element,
                           std::size_t lanes) {
  const std::size_t bytes = lanes * element;
  const std::size_t into = misalignment(memory, bytes);
  const std::size_t before = into == 0 ? 0 : (bytes - into) / element;
  if (before >= count) return {count, 0};
  return {before, (count - before) / lanes};
}

// `packs(first, stride)` for every thread's packs, step by step; `element(i)` for those outside.
template <class Block, class TakePacks, class TakeElement>
PITH_KERNEL void walk(const Block& block, Packs range, std::size_t lanes, std::size_t count,
                      TakePacks take_packs, TakeElement take_element) {
  const std::size_t step = std::size_t{Block::threads} * unrolled;
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

struct CombineArgs {
  std::byte* out;
  std::byte* second_out;  // or null
  const std::byte* a;
  const std::byte* b;  // or null
  std::size_t count;
  std::uint64_t bits;      // scale: the factor, where `where` is null
  const std::byte* where;  // scale
  float divisor;           // divide
};

// out[i] = f(a[i], b[i]), b[i] only where there are two inputs.
template <class T, bool kTwo, class Block, class Function>
PITH_KERNEL void combine_arrays(const Block& block, const CombineArgs& args, Function f) {
  constexpr unsigned lanes = words_bytes / sizeof(T);
  const std::byte* second = kTwo ? args.b : args.a;
  std::byte* const other = args.second_out ? args.second_out : args.out;
  const std::size_t into = misalignment(args.out, words_bytes);
  const bool congruent = into % sizeof(T) == 0 && misalignment(args.a, words_bytes) == into &&
                         misalignment(second, words_bytes) == into &&
                         misalignment(other, words_bytes) == into;
  const bool aligned = misalignment(args.out, sizeof(T)) + misalignment(args.a, sizeof(T)) +
                           misalignment(second, sizeof(T)) + misalignment(other, sizeof(T)) ==
                       0;
  Packs range{0, 0};
  if (congruent) range = packs_of(args.out, args.count, sizeof(T), lanes);
  const std::byte* const a = args.a + range.head * sizeof(T);
  const std::byte* const b = second + range.head * sizeof(T);
  std::byte* const out = args.out + range.head * sizeof(T);
  std::byte* const out2 = other + range.head * sizeof(T);
  const auto take_packs = [&](std::size_t first, std::size_t stride) {
    Pack<T, lanes> from_a[unrolled] = {};
    Pack<T, lanes> from_b[unrolled] = {};
    PITH_UNROLL
    for (unsigned u = 0; u < unrolled; ++u) {
      const std::size_t at = first + u * stride;
      if (at >= range.packs) continue;
      from_a[u] = load_pack<T, lanes>(a + at * words_bytes);
      if constexpr (kTwo) from_b[u] = load_pack<T, lanes>(b + at * words_bytes);
    }
    PITH_UNROLL
    for (unsigned u = 0; u < unrolled; ++u) {
      const std::size_t at = first + u * stride;
      if (at >= range.packs) continue;
      PITH_UNROLL
      for (unsigned lane = 0; lane < lanes; ++lane) {
        from_a[u].lane[lane] = f(from_a[u].lane[lane], from_b[u].lane[lane]);
      }
      store_pack(out + at * words_bytes, from_a[u]);
      if (args.second_out) store_pack(out2 + at * words_bytes, from_a[u]);
    }
  };
  const auto take_element = [&](std::size_t i) {
    const T x = load_element<T>(args.a, i, aligned);
    const T y = kTwo ? load_element<T>(second, i, aligned) : T{};
    const T z = f(x, y);
    store_element(args.out, i, z, aligned);
    if (args.second_out) store_element(args.second_out, i, z, aligned);
  };
  walk(block, range, lanes, args.count, take_packs, take_element);
}

// out[i] = op(a[i], b[i]).
template <class T, Op kOp>
struct Reduce {
  using Args = CombineArgs;
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    combine_arrays<T, true>(block, args, [](T a, T b) { return combine<kOp>(a, b); });
  }
};

// out[i] = a[i] * factor.
template <class T>
struct Scale {
  using Args = CombineArgs;
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
    combine_arrays<T, false>(block, args, [&](T a, T) { return combine<Op::prod>(a, factor); });
  }
};

// out[i] = a[i] / divisor.
template <class T>
struct Divide {
  using Args = CombineArgs;
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    combine_arrays<T, false>(block, args, [&](T a, T) { return divide(a, args.divisor); });
  }
};

struct Copy {
  using Args = CombineArgs;  // `count` in bytes
  using Shared = NoShared;
  static constexpr unsigned threads = dense_threads;
  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    using Byte = std::uint8_t;
    combine_arrays<Byte, false>(block, args, [](Byte a, Byte) { return a; });
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
    walk(block, range, lanes, args.bytes, take_packs, take_element);
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
    walk(block, range, lanes, args.count, take_packs, take_element);
  }
};

}  // namespace pith::cuda

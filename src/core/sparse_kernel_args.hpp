// The kernels of compressed collectives, by their arguments.
//
// They work on accumulators: float32, one per element of a vector, which hold gradient plus
// residual while a call runs and the residual between calls. An index names an element of the whole
// vector in 32 bits; lists of indices rise strictly. `accumulator` and `gradient` point to the
// first element of the range that a kernel works on, unless it takes indices.
//
// Magnitudes are compared as float32, by >=. An element whose sum is not finite is counted, passes
// no threshold, and leaves the accumulator as it was; where nothing is added it becomes zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/compute.hpp"
#include "core/dtype.hpp"

namespace pith {

// Counts and sums of squares by magnitude: a bin is the exponent and four bits of the mantissa.
struct MagnitudeHistogram {
  static constexpr std::size_t bins = 4096;
  static constexpr unsigned shift = 19;  // of the magnitude's bits
  std::array<std::uint64_t, bins> counts{};
  std::array<double, bins> squares{};
};

// What a pass over a range has found. Written as a whole.
struct PassResult {
  std::size_t selected = 0;   // elements that passed, also those for which there was no room
  std::size_t nonfinite = 0;  // elements that were not finite
  double squares = 0;         // sum of the squares of the finite elements; order not defined
};

// accumulator[i] += gradient[i].
struct AccumulateKernel {
  struct Args {
    float* accumulator;
    const std::byte* gradient;  // null: nothing to add
    DType type;                 // of the gradient: f32, f16 or bf16
    std::size_t count;
    bool fresh;  // the accumulator counts as zero: there is no feedback
    PassResult* result;
    MagnitudeHistogram* histogram = nullptr;  // of the finite sums; added to what it holds
  };
  static std::size_t work_bytes(const Args& args) { return 12 * args.count; }
  static KernelNote note(const Args& args) {
    const auto* memory = reinterpret_cast<const std::byte*>(args.accumulator);
    return {"accumulate",
            {{{memory, 4 * args.count}}},
            {{{args.gradient, args.gradient ? args.count * size_of(args.type) : 0}}}};
  }
};

// The same, and elements of at least this magnitude go to a list, in order, and leave zero behind.
// Those for which there is no room stay where they are.
struct SelectKernel {
  struct Args {
    AccumulateKernel::Args pass;
    float threshold;
    std::uint32_t first;     // index of the range's first element
    std::uint32_t* indices;  // room for `capacity` of both
    float* values;
    std::size_t capacity;
  };
  static std::size_t work_bytes(const Args& args) { return 12 * args.pass.count; }
  static KernelNote note(const Args& args) {
    KernelNote pass = AccumulateKernel::note(args.pass);
    pass.name = "select";
    return pass;
  }
};

// Magnitudes of what a pass over a range would leave, of some elements: `lines` runs of `line`
// elements, `stride` apart. Those that are not finite count as zero. Nothing changes.
struct SampleKernel {
  static constexpr std::size_t line = 16;  // a cache line of float32
  struct Args {
    AccumulateKernel::Args pass;
    std::size_t lines;   // lines * stride <= pass.count
    std::size_t stride;  // elements, at least `line`
    float* magnitudes;   // out: lines * line
  };
  static std::size_t work_bytes(const Args& args) { return 12 * line * args.lines; }
};

// Adds the finite values to a histogram, without changing them.
struct HistogramKernel {
  struct Args {
    const float* values;
    std::size_t count;
    MagnitudeHistogram* histogram;
  };
  static std::size_t work_bytes(const Args& args) { return 4 * args.count; }
};

// Keeps the k largest magnitudes of a list, in place and in order; of equal ones those of lowest
// index. The others are stored back to the accumulator at their indices. 1 <= k <= count.
struct KeepLargestKernel {
  struct Args {
    std::uint32_t* indices;
    float* values;
    std::size_t count;
    std::size_t k;
    float* accumulator;  // of the whole vector; null: the others are dropped
    float* smallest;     // out: the smallest magnitude kept
    double* squares;     // out: sum of the squares of what was kept
  };
  static std::size_t work_bytes(const Args& args) { return 8 * args.count; }
};

// Parts a list by magnitude, in order: what is at least the threshold stays, the rest is appended
// to another list. Both counts are written.
struct SplitKernel {
  struct Args {
    std::uint32_t* indices;
    float* values;
    std::size_t count;
    float threshold;
    std::uint32_t* lower_indices;  // room for `count`
    float* lower_values;
    std::size_t* kept;   // out
    std::size_t* lower;  // out
  };
  static std::size_t work_bytes(const Args& args) { return 8 * args.count; }
};

// The sum of squares of values.
struct SquaresKernel {
  struct Args {
    const std::byte* values;
    std::size_t count;
    DType type;
    double* squares;  // out
  };
  static std::size_t work_bytes(const Args& args) { return args.count * size_of(args.type); }
};

// values[i] = accumulator[indices[i]], which is left with what the rounding of `type` lost.
struct TakeKernel {
  struct Args {
    float* accumulator;  // of the whole vector
    const std::uint32_t* indices;
    std::size_t count;
    std::byte* values;
    DType type;       // of values: f32, bf16, or f16, which clips
    double* squares;  // out: sum of the squares of what was taken
  };
  static std::size_t work_bytes(const Args& args) { return args.count * 8; }
};

// out[i] = in[i] rounded to `type`; what the rounding lost is added to the accumulator.
struct RoundKernel {
  struct Args {
    float* accumulator;  // of the whole vector
    const std::uint32_t* indices;
    const float* in;
    std::size_t count;
    std::byte* out;
    DType type;  // f32, or bf16 and f16, which clip
  };
  static std::size_t work_bytes(const Args& args) { return args.count * 8; }
};

// accumulator[indices[i]] += values[i]: what was taken goes back.
struct ReturnKernel {
  struct Args {
    float* accumulator;  // of the whole vector
    const std::uint32_t* indices;
    const std::byte* values;
    std::size_t count;
    DType type;  // of values
  };
  static std::size_t work_bytes(const Args& args) { return args.count * 8; }
};

// out = in[0] + in[1] + ... in this order, in float32, rounded once to `type`. What the rounding
// lost is added to the accumulator, where there is one.
struct SumValuesKernel {
  struct Args {
    std::byte* out;              // may be one of the inputs
    const std::byte* const* in;  // n of them
    std::size_t n;
    std::size_t count;
    DType type;                    // of inputs and output: f32, or bf16 and f16, which clip
    float* accumulator;            // of the whole vector; null: losses are lost
    const std::uint32_t* indices;  // of the values
  };
  static std::size_t work_bytes(const Args& args) {
    return args.n * args.count * size_of(args.type);
  }
};

struct SparseList {
  const std::uint32_t* indices = nullptr;
  const std::byte* values = nullptr;
  std::size_t count = 0;
};

// The sum of lists whose indices lie in one range: every index once, with the sum of its values in
// float32 in the order of the lists.
struct SumListsKernel {
  struct Args {
    const SparseList* lists;
    std::size_t n;
    DType type;  // of their values
    std::uint32_t first;
    std::size_t span;
    float* sums;             // scratch: `span` zeros, and zeros again afterwards
    std::uint64_t* touched;  // scratch: a bit per element, zero before and afterwards
    std::uint32_t* indices;  // out; room for the sum of the counts, or for `span`
    float* values;           // out
    std::size_t* count;      // out
  };
  static std::size_t work_bytes(const Args& args) {
    std::size_t all = 0;
    for (std::size_t i = 0; i < args.n; ++i) all += args.lists[i].count;
    return 8 * all;
  }
  static KernelNote note(const Args&) { return {"add up", {}, {}}; }
};

// One range of a dense result: values[i] / divisor at the indices, zero elsewhere.
struct ScatterKernel {
  struct Args {
    std::byte* out;  // of the range's first element
    DType type;      // of out: f32, f16 or bf16
    std::uint32_t first;
    std::size_t span;
    const std::uint32_t* indices;
    const std::byte* values;
    DType value_type;
    std::size_t count;
    float divisor;
    bool streaming = false;  // the result is not needed in cache
  };
  static std::size_t work_bytes(const Args& args) { return args.span * size_of(args.type); }
  static KernelNote note(const Args& args) {
    return {"scatter", {{{args.out, args.span * size_of(args.type)}}}, {}};
  }
};

// out[i] = in[i] / divisor, converted as ScatterKernel does.
struct ConvertKernel {
  struct Args {
    std::byte* out;
    DType type;  // of out: f32, f16 or bf16
    const std::byte* in;
    DType in_type;
    std::size_t count;
    float divisor;
  };
  static std::size_t work_bytes(const Args& args) { return args.count * 8; }
};

struct ZeroKernel {
  struct Args {
    std::byte* out;
    std::size_t bytes;
  };
  static std::size_t work_bytes(const Args& args) { return args.bytes; }
};

struct FillNanKernel {
  struct Args {
    std::byte* out;
    DType type;  // f32, f16 or bf16
    std::size_t count;
  };
  static std::size_t work_bytes(const Args& args) { return args.count * size_of(args.type); }
};

// The indices of one range as bytes: per block of the vector the cheapest of several codings. See
// kernels/index_code.hpp for the format.
struct EncodeIndicesKernel {
  struct Args {
    const std::uint32_t* indices;
    std::size_t count;
    std::uint32_t first;
    std::size_t span;
    std::byte* out;        // room for coded_bound(count, span)
    std::size_t* written;  // out: bytes
  };
  static constexpr std::size_t block_elements = std::size_t{1} << 16;
  // Bytes that no coding of a range exceeds.
  static constexpr std::size_t coded_bound(std::size_t count, std::size_t span) {
    const std::size_t blocks = (span + block_elements - 1) / block_elements;
    const std::size_t bitmaps = span / 8 + 8 * blocks;
    const std::size_t plain = 3 * count;
    return 16 + 8 * blocks + (plain < bitmaps ? plain : bitmaps);
  }
  static std::size_t work_bytes(const Args& args) { return 6 * args.count; }
  static KernelNote note(const Args& args) {
    return {"encode", {{{args.out, coded_bound(args.count, args.span)}}}, {}};
  }
};

struct Decoded {
  bool valid = false;     // false: no coding of a range; nothing else holds then
  std::size_t count = 0;  // indices
  std::size_t bytes = 0;  // of the coding
};

// Never reads behind `bytes` nor writes behind `capacity`, whatever the bytes are.
struct DecodeIndicesKernel {
  struct Args {
    const std::byte* coded;
    std::size_t bytes;  // at least those of the coding
    std::uint32_t first;
    std::size_t span;
    std::uint32_t* indices;  // out
    std::size_t capacity;
    Decoded* result;
  };
  static std::size_t work_bytes(const Args& args) { return args.bytes; }
  static KernelNote note(const Args& args) { return {"decode", {}, {{{args.coded, args.bytes}}}}; }
};

}  // namespace pith

// The arguments of the compressed collectives' kernels.
//
// An accumulator has one float32 per element of a vector. It holds gradient plus residual during a
// call and the residual between calls. An index is the 32-bit position of an element in the whole
// vector; the indices of a list are strictly ascending. `accumulator` and `gradient` point to the
// first element of the range that a kernel works on. In kernels that take indices, `accumulator`
// points to the whole vector.
//
// Magnitudes are compared as float32, by >=. An element whose sum is not finite is counted, passes
// no threshold and leaves the accumulator unchanged; if nothing is added, it becomes zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/compute.hpp"
#include "core/dtype.hpp"
#include "core/sparse/coding.hpp"

namespace pith {

// Counts and sums of squares by magnitude. A bin is given by the exponent and four mantissa bits.
struct MagnitudeHistogram {
  static constexpr std::size_t bins = 4096;
  static constexpr unsigned shift = 19;  // bin = bits of the magnitude >> shift
  std::array<std::uint64_t, bins> counts{};
  std::array<double, bins> squares{};
};

// The result of a pass over a range. The kernel overwrites all of it.
struct PassResult {
  std::size_t selected = 0;   // elements that passed, including those beyond the capacity
  std::size_t nonfinite = 0;  // elements that were not finite
  double squares = 0;         // sum of squares of the finite elements, in any order
};

// accumulator[i] += gradient[i].
struct AccumulateKernel {
  struct Args {
    float* accumulator;
    const std::byte* gradient;  // null: nothing is added
    DType type;                 // of the gradient: f32, f16 or bf16
    std::size_t count;
    bool fresh;  // the accumulator is read as zero, for feedback=0
    PassResult* result;
    MagnitudeHistogram* histogram = nullptr;  // the finite sums are added to it
  };
  static std::size_t work_bytes(const Args& args) { return 12 * args.count; }
  static KernelNote note(const Args& args) {
    const auto* memory = reinterpret_cast<const std::byte*>(args.accumulator);
    return {"accumulate",
            {{{memory, 4 * args.count}}},
            {{{args.gradient, args.gradient ? args.count * size_of(args.type) : 0}}}};
  }
};

// As AccumulateKernel. In addition, elements of at least the threshold's magnitude are moved to a
// list, in order, leaving zero behind. Elements beyond the capacity stay in the accumulator.
struct SelectKernel {
  struct Args {
    AccumulateKernel::Args pass;
    float threshold;
    std::uint32_t first;     // index of the range's first element
    std::uint32_t* indices;  // `capacity` of both
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

// Samples the magnitudes that AccumulateKernel would leave: `lines` runs of `line` elements, one
// every `stride` elements. Elements that are not finite count as zero. The accumulator is not
// changed.
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

// Adds the finite values to a histogram.
struct HistogramKernel {
  struct Args {
    const float* values;
    std::size_t count;
    MagnitudeHistogram* histogram;
  };
  static std::size_t work_bytes(const Args& args) { return 4 * args.count; }
};

// Keeps the k largest magnitudes of a list, in place and in order; of equal magnitudes the lowest
// indices. The other values are stored back to the accumulator. 1 <= k <= count.
struct KeepLargestKernel {
  struct Args {
    std::uint32_t* indices;
    float* values;
    std::size_t count;
    std::size_t k;
    float* accumulator;  // null: the others are dropped
    float* smallest;     // out: smallest magnitude kept
    double* squares;     // out: sum of squares of the kept values
  };
  static std::size_t work_bytes(const Args& args) { return 8 * args.count; }
};

// Splits a list by magnitude, in order: elements of at least the threshold stay, the others are
// written to a second list.
struct SplitKernel {
  struct Args {
    std::uint32_t* indices;
    float* values;
    std::size_t count;
    float threshold;
    std::uint32_t* lower_indices;  // room for `count`
    float* lower_values;
    std::size_t* kept;   // out: elements that stay
    std::size_t* lower;  // out: elements of the second list
  };
  static std::size_t work_bytes(const Args& args) { return 8 * args.count; }
};

// squares = sum of values[i]^2.
struct SquaresKernel {
  struct Args {
    const std::byte* values;
    std::size_t count;
    DType type;
    double* squares;  // out
  };
  static std::size_t work_bytes(const Args& args) { return args.count * size_of(args.type); }
};

// values[i] = accumulator[indices[i]] rounded to `type`. The accumulator keeps the rounding error.
struct TakeKernel {
  struct Args {
    float* accumulator;  // of the whole vector
    const std::uint32_t* indices;
    std::size_t count;
    std::byte* values;
    DType type;       // of values: f32, bf16, or f16, which saturates
    double* squares;  // out: sum of squares of the values
  };
  static std::size_t work_bytes(const Args& args) { return args.count * 8; }
};

// out[i] = in[i] rounded to `type`. The rounding error is added to accumulator[indices[i]].
struct RoundKernel {
  struct Args {
    float* accumulator;  // of the whole vector
    const std::uint32_t* indices;
    const float* in;
    std::size_t count;
    std::byte* out;
    DType type;  // f32, or bf16 and f16, which saturate
  };
  static std::size_t work_bytes(const Args& args) { return args.count * 8; }
};

// accumulator[indices[i]] += values[i], to undo TakeKernel.
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

// out = in[0] + in[1] + ... in this order, in float32, rounded once to `type`. The rounding error
// is added to the accumulator at the indices.
struct SumValuesKernel {
  struct Args {
    std::byte* out;              // may be one of the inputs
    const std::byte* const* in;  // n of them
    std::size_t n;
    std::size_t count;
    DType type;                    // of inputs and output: f32, or bf16 and f16, which saturate
    float* accumulator;            // null: rounding errors are dropped
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

// Sums lists whose indices are in one range. The result has every index once, with the sum of its
// values in float32, added in the order of the lists.
struct SumListsKernel {
  struct Args {
    const SparseList* lists;
    std::size_t n;
    DType type;  // of their values
    std::uint32_t first;
    std::size_t span;
    float* sums;             // scratch: `span` elements, zero before and after
    std::uint64_t* touched;  // scratch: one bit per element, zero before and after
    std::uint32_t* indices;  // out; capacity: min(sum of the counts, span)
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

// Writes one range of a dense result: values[i] / divisor at the indices, zero elsewhere.
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

// Encodes the indices of one range, each block of the vector by the shortest of several codings.
// See kernels/index_code.hpp for the format.
struct EncodeIndicesKernel {
  struct Args {
    const std::uint32_t* indices;
    std::size_t count;
    std::uint32_t first;
    std::size_t span;
    std::byte* out;        // of coded_bound(count, span) bytes
    std::size_t* written;  // out: bytes written
  };
  static constexpr std::size_t block_elements = std::size_t{1} << 16;
  // The most bytes that a coding of `count` indices in `span` elements takes.
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
  bool valid = false;     // false: malformed; the rest is then undefined
  std::size_t count = 0;  // number of indices
  std::size_t bytes = 0;  // length of the coding
};

// Never reads beyond `bytes` or writes beyond `capacity`, even for malformed input.
struct DecodeIndicesKernel {
  struct Args {
    const std::byte* coded;
    std::size_t bytes;  // at least the length of the coding
    std::uint32_t first;
    std::size_t span;
    std::uint32_t* indices;  // out
    std::size_t capacity;
    Decoded* result;
  };
  static std::size_t work_bytes(const Args& args) { return args.bytes; }
  static KernelNote note(const Args& args) { return {"decode", {}, {{{args.coded, args.bytes}}}}; }
};

// out = the coded values.
struct EncodeValuesKernel {
  struct Args {
    Coding coding;
    CodingInput input;
    const float* in;
    std::size_t count;
    std::byte* out;  // coding.bytes(count)
  };
  static std::size_t work_bytes(const Args& args) { return 4 * args.count; }
  static KernelNote note(const Args& args) {
    const auto* in = reinterpret_cast<const std::byte*>(args.in);
    return {
        "encode values", {{{args.out, args.coding.bytes(args.count)}}}, {{{in, 4 * args.count}}}};
  }
};

// out[i] = value i / divisor, converted as ConvertKernel does. `instead`, if not null: the values
// where the coded ones are not finite.
struct DecodeValuesKernel {
  struct Args {
    Coding coding;
    const std::byte* in;
    std::size_t count;
    std::byte* out;
    DType type;  // of out: f32, f16 or bf16
    float divisor;
    const float* instead = nullptr;
  };
  static std::size_t work_bytes(const Args& args) { return args.count * size_of(args.type); }
  static KernelNote note(const Args& args) {
    return {"decode values",
            {{{args.out, args.count * size_of(args.type)}}},
            {{{args.in, args.coding.bytes(args.count)}}}};
  }
};

// out = the coded sums of n coded vectors, added in this order in float32. With `own` the vector
// `own_rank` is these values, not coded, and comes first; `change` is what makes of them what
// coding loses of the sums, or zero where the coded sums are not finite.
struct SumCodedKernel {
  struct Args {
    Coding coding;
    CodingInput input;
    std::byte* out;              // may be one of the inputs
    const std::byte* const* in;  // n of them
    std::size_t n;
    std::size_t count;
    const float* own = nullptr;
    float* change = nullptr;  // may be `own`
    std::size_t own_rank = 0;
  };
  static std::size_t work_bytes(const Args& args) {
    return args.n * args.coding.bytes(args.count) + (args.own ? 12 : 4) * args.count;
  }
  static KernelNote note(const Args&) { return {"sum coded", {}, {}}; }
};

// Low rank: a matrix of rows x columns elements, row by row, about equal to left times right, with
// rank columns in left and rank rows in right, both row by row too.
struct FactorShape {
  std::size_t rows;
  std::size_t columns;
  std::size_t rank;
};

// left = matrix times right transposed. Sums in any order.
struct ProjectKernel {
  struct Args {
    FactorShape shape;
    const float* matrix;
    const float* right;
    float* left;
  };
  static std::size_t work_bytes(const Args& args) {
    return sizeof(float) * args.shape.rows * args.shape.columns;
  }
};

// right = left transposed times matrix, added to what is there unless `fresh`. Sums in any order.
struct BackProjectKernel {
  struct Args {
    FactorShape shape;
    const float* matrix;
    const float* left;
    float* right;
    bool fresh;
  };
  static std::size_t work_bytes(const Args& args) {
    return sizeof(float) * args.shape.rows * args.shape.columns;
  }
};

// matrix += factor times left times right. Products are added in the order of the ranks, none fused
// into an addition, so that all machines get the same bits.
struct AddProductKernel {
  struct Args {
    FactorShape shape;
    const float* left;
    const float* right;
    float factor;
    float* matrix;
  };
  static std::size_t work_bytes(const Args& args) {
    return 2 * sizeof(float) * args.shape.rows * args.shape.columns;
  }
};

// out = left times right / divisor, with the bits of AddProductKernel, converted as ConvertKernel
// does.
struct PutProductKernel {
  struct Args {
    FactorShape shape;
    const float* left;
    const float* right;
    float divisor;
    std::byte* out;
    DType type;  // f32, f16 or bf16
  };
  static std::size_t work_bytes(const Args& args) {
    return size_of(args.type) * args.shape.rows * args.shape.columns;
  }
};

}  // namespace pith

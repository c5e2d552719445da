// The arguments of the dense collectives' kernels. work_bytes: the bytes that a cost model
// charges for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/compute.hpp"
#include "core/dtype.hpp"

namespace pith {

// out[i] = op(a[i], b[i]); out may equal a or b. Avg reduces as sum; see FinishAvgKernel.
struct ReduceKernel {
  struct Args {
    std::byte* out;
    const std::byte* a;
    const std::byte* b;
    std::size_t count;
    DType type;
    Op op;
    bool streaming = false;  // the result is not needed in cache
  };
  static std::size_t work_bytes(const Args& args) { return args.count * size_of(args.type); }
  static KernelNote note(const Args& args) {
    const std::size_t bytes = work_bytes(args);
    return {"reduce", {{{args.out, bytes}}}, {{{args.a, bytes}, {args.b, bytes}}}};
  }
};

// Every output gets op(op(in[0][i], in[1][i]), in[2][i])..., divided by the divisor unless that is
// 0. The bits are those of one ReduceKernel per further input, then FinishAvgKernel. An output may
// be an input.
struct ReduceManyKernel {
  static constexpr std::size_t most_operands = 32;
  struct Args {
    std::size_t count;
    DType type;
    Op op;
    float divisor = 0;          // 0: not divided
    bool streaming = false;     // the result is not needed in cache
    std::uint32_t inputs = 0;   // at least one; the rest of `in` is not read
    std::uint32_t outputs = 0;  // at least one
    std::array<const std::byte*, most_operands> in;
    std::array<std::byte*, most_operands> out;
  };
  static std::size_t work_bytes(const Args& args) {
    const std::size_t passes = args.inputs - 1 + (args.divisor != 0 ? 1 : 0);
    return passes * args.count * size_of(args.type);
  }
  static KernelNote note(const Args& args) {
    const std::size_t bytes = args.count * size_of(args.type);
    KernelNote note{"reduce", {}, {}};
    for (std::size_t o = 0; o < args.outputs; ++o) note.writes.at(o) = {args.out[o], bytes};
    for (std::size_t k = 0; k < args.inputs; ++k) note.reads.at(k) = {args.in[k], bytes};
    return note;
  }
};

// data[i] /= divisor, after a sum. Integers need an integral divisor and round towards zero.
struct FinishAvgKernel {
  struct Args {
    std::byte* data;
    std::size_t count;
    DType type;
    float divisor;
  };
  static std::size_t work_bytes(const Args& args) { return args.count * size_of(args.type); }
  static KernelNote note(const Args& args) {
    return {"divide", {{{args.data, work_bytes(args)}}}, {{{args.data, work_bytes(args)}}}};
  }
};

// out[i] = in[i] * factor, rounded as in one step of Op::prod; out may equal in. The factor is the
// element at `where` when the kernel runs; if `where` is null, the first bytes of `bits` are the
// factor.
struct ScaleKernel {
  struct Args {
    std::byte* out;
    const std::byte* in;
    std::size_t count;
    DType type;
    ElementBits bits;
    const std::byte* where = nullptr;
  };
  static std::size_t work_bytes(const Args& args) { return args.count * size_of(args.type); }
  static KernelNote note(const Args& args) {
    return {"scale", {{{args.out, work_bytes(args)}}}, {{{args.in, work_bytes(args)}}}};
  }
};

struct CopyKernel {
  struct Args {
    std::byte* out;
    const std::byte* in;
    std::size_t bytes;
    bool streaming = false;
  };
  static std::size_t work_bytes(const Args&) { return 0; }
  static KernelNote note(const Args& args) {
    return {"copy", {{{args.out, args.bytes}}}, {{{args.in, args.bytes}}}};
  }
};

}  // namespace pith

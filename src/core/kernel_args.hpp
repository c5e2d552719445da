// The kernels of the dense collectives, by their arguments. work_bytes: bytes read and written,
// which is what a cost model charges for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/compute.hpp"
#include "core/dtype.hpp"

namespace pith {

// out[i] = op(a[i], b[i]); out may equal a or b. Avg reduces like sum; see FinishAvg.
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

// Both outputs get op(a[i], b[i]): one read, two stores.
struct ReduceToTwoKernel {
  struct Args {
    std::byte* out1;
    std::byte* out2;
    const std::byte* a;
    const std::byte* b;
    std::size_t count;
    DType type;
    Op op;
    bool streaming = false;
  };
  static std::size_t work_bytes(const Args& args) { return args.count * size_of(args.type); }
  static KernelNote note(const Args& args) {
    const std::size_t bytes = work_bytes(args);
    return {"reduce to two",
            {{{args.out1, bytes}, {args.out2, bytes}}},
            {{{args.a, bytes}, {args.b, bytes}}}};
  }
};

// data[i] /= divisor, after a sum: a whole number for integers, which are divided towards zero.
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

// out[i] = in[i] * factor, like one step of a product; out may equal in. The factor is the element
// at `where` when the kernel runs, or the one whose bytes are the first of `bits`.
struct ScaleKernel {
  struct Args {
    std::byte* out;
    const std::byte* in;
    std::size_t count;
    DType type;
    std::uint64_t bits;
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

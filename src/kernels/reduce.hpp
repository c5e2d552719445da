// Element-wise reductions on host memory.
//
// Every result is bit-identical on every CPU, with the semantics of pith.h. Every NaN produced is
// the canonical one of formats.hpp. Buffers may start at any byte address. The functions are
// stateless, thread-safe, allocate nothing and cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace pith::kernels {

// `streaming` bypasses the caches: for results that are larger than them and not read soon.
enum class Stores : std::uint8_t { cached, streaming };

// out[i] = op(a[i], b[i]), where is_defined(op, type). `out` may equal `a` or `b`, and must not
// overlap them otherwise. Op::avg adds; the caller calls finish_avg once at the end.
void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType type,
            Op op, Stores stores = Stores::cached);

// Reads a and b once and writes the result to both outputs, either of which may equal a or b.
void reduce_to_two(std::byte* out1, std::byte* out2, const std::byte* a, const std::byte* b,
                   std::size_t count, DType type, Op op, Stores stores = Stores::cached);

// Combines in[0], ..., in[n - 1] in this order, bit-identical to a left fold of reduce(): narrow
// floats are rounded after every input. n >= 1; `out` may equal any one input.
void reduce_many(std::byte* out, const std::byte* const* in, int n, std::size_t count, DType type,
                 Op op, Stores stores = Stores::cached);

// data[i] /= divisor. Integers: the divisor must be a whole number, and results are truncated.
// Floats are divided in float32 (f64 in float64) and rounded once, complex numbers part by part.
void finish_avg(std::byte* data, std::size_t count, DType type, float divisor);

// out[i] = in[i] * factor, bit-identical to reduce() with Op::prod. `out` may equal `in`.
void scale(std::byte* out, const std::byte* in, const std::byte* factor, std::size_t count,
           DType type);

// Call it qualified: with std::byte, argument-dependent lookup also finds std::copy.
void copy(std::byte* out, const std::byte* in, std::size_t bytes, Stores stores = Stores::cached);

}  // namespace pith::kernels

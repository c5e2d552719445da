// Element-wise reductions on host memory.
//
// Every result is the same bit for bit on every CPU; semantics are those of pith.h. Every NaN
// produced is the canonical one of formats.hpp. Buffers may start at any byte address. The
// functions keep no state, allocate nothing, cannot fail and may run on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace pith::kernels {

// `streaming` writes past the caches: for results that are larger than them and not read soon.
enum class Stores : std::uint8_t { cached, streaming };

// out[i] = op(a[i], b[i]). `out` may equal `a` or `b`, and may not overlap them otherwise.
// Op::avg adds; the caller ends with one finish_avg.
void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType type,
            Op op, Stores stores = Stores::cached);

// Reads a and b once and writes the result to both outputs, either of which may equal a or b.
void reduce_to_two(std::byte* out1, std::byte* out2, const std::byte* a, const std::byte* b,
                   std::size_t count, DType type, Op op, Stores stores = Stores::cached);

// Combines in[0], ..., in[n - 1] in this order with the bits of a left fold of reduce(): narrow
// floats are rounded after every input. n >= 1; `out` may equal any one input.
void reduce_many(std::byte* out, const std::byte* const* in, int n, std::size_t count, DType type,
                 Op op, Stores stores = Stores::cached);

// data[i] /= divisor: integers by a whole number, towards zero; floats are divided in float32
// (float64 for f64) and rounded once.
void finish_avg(std::byte* data, std::size_t count, DType type, float divisor);

// out[i] = in[i] * factor, bit for bit what reduce() with Op::prod gives. `out` may equal `in`.
void scale(std::byte* out, const std::byte* in, const std::byte* factor, std::size_t count,
           DType type);

// Call it qualified: std::byte lets an unqualified call find std::copy.
void copy(std::byte* out, const std::byte* in, std::size_t bytes, Stores stores = Stores::cached);

}  // namespace pith::kernels

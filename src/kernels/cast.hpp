// Conversion between the floating-point types.
#pragma once

#include <cstddef>

#include "core/dtype.hpp"

namespace pith::kernels {

// out[i] = in[i], rounded once to nearest even. 16- and 32-bit floats overflow to infinity, 8-bit
// ones saturate; infinity is kept where the output type has it. NaNs become the canonical NaN, also
// where both types are equal. Both types must be floats. `out` may equal `in` where the types have
// the same size; buffers may start at any byte address and must not overlap otherwise.
void cast(std::byte* out, DType out_type, const std::byte* in, DType in_type, std::size_t count);

}  // namespace pith::kernels

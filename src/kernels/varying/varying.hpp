// The kernels of values coded to a length that depends on them, on host memory.
// core/sparse/varying_coding.hpp documents their arguments.
//
// Buffers may start at any byte address. The functions are thread-safe. Decoding reads nothing
// beyond the given bytes and writes no more than `count` values, whatever the bytes are.
#pragma once

#include "core/sparse/varying_coding.hpp"

namespace pith::kernels {

void encode_varying(const EncodeVaryingKernel::Args& args);
void decode_varying(const DecodeVaryingKernel::Args& args);

// By kind. `lossless` keeps room per thread, and throws bad_alloc if there is none.
void encode_bounded(const EncodeVaryingKernel::Args& args);
void decode_bounded(const DecodeVaryingKernel::Args& args);
void encode_lossless(const EncodeVaryingKernel::Args& args);
void decode_lossless(const DecodeVaryingKernel::Args& args);

// The twins of the first two, which define the results bit for bit. The bytes of `lossless` are the
// entropy coder's.
namespace scalar {

void encode_bounded(const EncodeVaryingKernel::Args& args);
void decode_bounded(const DecodeVaryingKernel::Args& args);

}  // namespace scalar

}  // namespace pith::kernels

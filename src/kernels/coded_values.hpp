// The kernels of values coded in blocks, on host memory, and their scalar twins, which define the
// results bit for bit. core/sparse_kernel_args.hpp documents each, core/sparse/coding.hpp
// the layout.
//
// Buffers may start at any byte address. The functions are thread-safe, allocate nothing and cannot
// fail; they read nothing beyond coding.bytes(count), whatever the codes.
#pragma once

#include "core/sparse_kernel_args.hpp"

namespace pith::kernels {

void encode_values(const EncodeValuesKernel::Args& args);
void decode_values(const DecodeValuesKernel::Args& args);
void sum_coded(const SumCodedKernel::Args& args);

namespace scalar {

void encode_values(const EncodeValuesKernel::Args& args);
void decode_values(const DecodeValuesKernel::Args& args);
void sum_coded(const SumCodedKernel::Args& args);

}  // namespace scalar

}  // namespace pith::kernels

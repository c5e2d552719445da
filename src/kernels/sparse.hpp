// The kernels of compressed collectives on host memory. core/sparse_kernel_args.hpp documents each,
// sparse_scalar.hpp defines the results bit for bit; exceptions are sums of squares, which depend
// on the order of addition, and the payload of a NaN where several NaNs are added.
//
// Gradients, values and encoded indices may start at any byte address. The functions are
// thread-safe and cannot fail; keep_largest and histogram allocate scratch once per thread, the
// others nothing.
#pragma once

#include "core/sparse_kernel_args.hpp"

namespace pith::kernels {

void accumulate(const AccumulateKernel::Args& args);
void select(const SelectKernel::Args& args);
void histogram(const HistogramKernel::Args& args);
void keep_largest(const KeepLargestKernel::Args& args);
void split(const SplitKernel::Args& args);
void squares(const SquaresKernel::Args& args);
void take(const TakeKernel::Args& args);
void round_values(const RoundKernel::Args& args);
void give_back(const ReturnKernel::Args& args);
void sum_values(const SumValuesKernel::Args& args);
void sum_lists(const SumListsKernel::Args& args);
void scatter(const ScatterKernel::Args& args);
void convert(const ConvertKernel::Args& args);
void encode_indices(const EncodeIndicesKernel::Args& args);
void decode_indices(const DecodeIndicesKernel::Args& args);

}  // namespace pith::kernels

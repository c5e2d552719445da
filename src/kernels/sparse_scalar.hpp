// The scalar twins of the compression kernels: they define what the fast ones must compute, bit for
// bit except for sums of squares, whose order is open.
#pragma once

#include "core/sparse_kernel_args.hpp"

namespace pith::kernels::scalar {

void accumulate(const AccumulateKernel::Args& args);
void select(const SelectKernel::Args& args);
void sample(const SampleKernel::Args& args);  // no SIMD form: bound by memory latency
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
void zero(const ZeroKernel::Args& args);
void fill_nan(const FillNanKernel::Args& args);
void encode_indices(const EncodeIndicesKernel::Args& args);
void decode_indices(const DecodeIndicesKernel::Args& args);

}  // namespace pith::kernels::scalar

// Launchers of the compression kernels. Arguments and results point to device or pinned memory,
// except arrays of pointers and of lists, which are on the host and read before the launch.
#pragma once

#include "core/sparse/draw_kernel.hpp"
#include "core/sparse/momentum_kernel.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith::cuda {

void launch_accumulate(const AccumulateKernel::Args& args);
void launch_select(const SelectKernel::Args& args);
void launch_draw(const DrawKernel::Args& args);
void launch_momentum(const MomentumKernel::Args& args);
void launch_sample(const SampleKernel::Args& args);
void launch_histogram(const HistogramKernel::Args& args);
void launch_keep_largest(const KeepLargestKernel::Args& args);
void launch_split(const SplitKernel::Args& args);
void launch_squares(const SquaresKernel::Args& args);
void launch_take(const TakeKernel::Args& args);
void launch_round(const RoundKernel::Args& args);
void launch_return(const ReturnKernel::Args& args);
void launch_sum_values(const SumValuesKernel::Args& args);
void launch_sum_lists(const SumListsKernel::Args& args);
void launch_scatter(const ScatterKernel::Args& args);
void launch_convert(const ConvertKernel::Args& args);
void launch_zero(const ZeroKernel::Args& args);
void launch_fill_nan(const FillNanKernel::Args& args);
void launch_encode_values(const EncodeValuesKernel::Args& args);
void launch_decode_values(const DecodeValuesKernel::Args& args);
void launch_project(const ProjectKernel::Args& args);
void launch_back_project(const BackProjectKernel::Args& args);
void launch_add_product(const AddProductKernel::Args& args);
void launch_put_product(const PutProductKernel::Args& args);
void launch_encode_indices(const EncodeIndicesKernel::Args& args);
void launch_decode_indices(const DecodeIndicesKernel::Args& args);

}  // namespace pith::cuda

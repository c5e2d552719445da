// Launchers of the dense kernels.
#pragma once

#include "core/kernel_args.hpp"

namespace pith::cuda {

void launch_reduce(const ReduceKernel::Args& args);
void launch_reduce_many(const ReduceManyKernel::Args& args);
void launch_finish_avg(const FinishAvgKernel::Args& args);
void launch_scale(const ScaleKernel::Args& args);
void launch_copy(const CopyKernel::Args& args);

}  // namespace pith::cuda

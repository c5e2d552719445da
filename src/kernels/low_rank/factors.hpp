// The kernels of low-rank factors, on host memory, and their scalar twins.
// core/sparse_kernel_args.hpp documents each.
//
// Matrices and factors are aligned to 4 bytes; `out` may start at any byte address. The functions
// are thread-safe, allocate nothing and cannot fail.
#pragma once

#include "core/sparse_kernel_args.hpp"

namespace pith::kernels {

void project(const ProjectKernel::Args& args);
void back_project(const BackProjectKernel::Args& args);
void add_product(const AddProductKernel::Args& args);
void put_product(const PutProductKernel::Args& args);

namespace scalar {

void project(const ProjectKernel::Args& args);
void back_project(const BackProjectKernel::Args& args);
void add_product(const AddProductKernel::Args& args);
void put_product(const PutProductKernel::Args& args);

}  // namespace scalar

}  // namespace pith::kernels

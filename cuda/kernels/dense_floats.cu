#include "cuda/kernels/list.hpp"

namespace pith::cuda {

#define PITH_CUDA_DEFINE(name, ...) PITH_CUDA_GLOBAL(pith_##name, __VA_ARGS__)
PITH_CUDA_FLOAT_KERNELS(PITH_CUDA_DEFINE)
PITH_CUDA_COMPLEX_KERNELS(PITH_CUDA_DEFINE)

}  // namespace pith::cuda

#include "cuda/kernels/list.hpp"

namespace pith::cuda {

#define PITH_CUDA_DEFINE(name, ...) PITH_CUDA_GLOBAL(pith_##name, __VA_ARGS__)
PITH_CUDA_INTEGER_KERNELS(PITH_CUDA_DEFINE)
PITH_CUDA_BIT_KERNELS(PITH_CUDA_DEFINE)

}  // namespace pith::cuda

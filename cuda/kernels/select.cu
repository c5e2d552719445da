#include "cuda/kernels/list.hpp"

namespace pith::cuda {

#define PITH_CUDA_DEFINE(name, ...) PITH_CUDA_GLOBAL(pith_##name, __VA_ARGS__)
PITH_CUDA_SELECT_KERNELS(PITH_CUDA_DEFINE)

}  // namespace pith::cuda

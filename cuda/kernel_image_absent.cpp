#include "cuda/kernel_image.hpp"

namespace pith::cuda {

std::span<const KernelImage> kernel_images() { return {}; }

}  // namespace pith::cuda

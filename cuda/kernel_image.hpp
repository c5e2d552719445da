// The compiled kernels as they are embedded in this library.
#pragma once

#include <span>
#include <string_view>

namespace pith::cuda {

struct KernelImage {
  const void* data;       // a fatbin
  std::string_view name;  // of its source
};

// Empty where the library was built without nvcc.
std::span<const KernelImage> kernel_images();

}  // namespace pith::cuda

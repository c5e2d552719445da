// The compiled kernels embedded in this library.
#pragma once

#include <span>
#include <string_view>

namespace pith::cuda {

struct KernelImage {
  const void* data;       // a fatbin
  std::string_view name;  // of the source file
};

// Empty if the library was built without nvcc.
std::span<const KernelImage> kernel_images();

}  // namespace pith::cuda

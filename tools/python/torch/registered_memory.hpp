// Tensors in memory that the other ranks of the host access directly: pithMemAlloc.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <vector>

namespace pith_torch {

at::Tensor empty_registered(const std::vector<int64_t>& shape, at::ScalarType type);

// PyTorch's allocator of host memory, as long as `on`: tensors made meanwhile are registered.
void register_new_tensors(bool on);

}  // namespace pith_torch

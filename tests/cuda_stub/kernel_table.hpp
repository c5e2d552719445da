// Pith's kernels as a stub driver runs them: kernel_table.cpp block after block,
// simt/kernel_table.cpp with a fiber for every thread.
#pragma once

#include <span>

#include "cuda/driver_api.hpp"

namespace pith::cuda {

// Whether kernels that wait go on; it may hold them in that call.
struct Holder {
  bool (*goes_on)(void* of);
  void* of;
};

// A function of any context is its kernel.
struct CUkern_st {
  const char* symbol;
  unsigned threads;  // of a block
  unsigned args_bytes;
  // False: as a device that faults.
  bool (*run)(const CUkern_st& kernel, const void* args, unsigned blocks, const Holder& holder);
};

std::span<CUkern_st> kernel_table();

}  // namespace pith::cuda

// Pith's kernels as a stub driver runs them: kernel_table.cpp block after block,
// simt/kernel_table.cpp with a fiber for every thread.
#pragma once

#include <span>

#include "cuda/driver_api.hpp"

namespace pith::cuda {

struct Holder {
  // Whether kernels that wait go on; it may hold them in that call.
  bool (*goes_on)(void* of);
  // Of kernels whose blocks wait for each other; not asked by fibers. Whether a block ever begins;
  // it may hold it in that call, as a device without room for it. And who has begun has ended.
  bool (*begins)(void* of, unsigned block);
  void (*ends)(void* of);
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

// Pith's kernels by name: what a library holds here, whatever image it was loaded from. A launch
// runs the kernel's body for one block after another on the stream's thread; a worker's blocks,
// which wait for each other, run on a thread each.
#include "cuda/kernels/worker.hpp"

#include <algorithm>
#include <iterator>

#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

struct CUlib_st {
  int loaded = 0;
};
// A function of any context is its kernel.
struct CUkern_st {
  KernelFacts facts;
  void (*run)(const void* args, unsigned blocks, const Watch& watch);
};

namespace {

CUlib_st library;

CUkern_st kernels[] = {
#define PITH_STUB_KERNEL(name, ...) \
  {kernel_facts[static_cast<std::size_t>(KernelName::name)], emulate<__VA_ARGS__>},
    PITH_CUDA_KERNELS(PITH_STUB_KERNEL)
#undef PITH_STUB_KERNEL
        {worker_facts, emulate_together<Worker>},
};

// A kernel starts on 16 bytes, as parameters do.
struct alignas(16) Unit {
  std::byte bytes[16];
};

struct Run {
  const CUkern_st* kernel;
  const Unit* args;
  unsigned blocks;
  Watch watch;
};

void run(void* raw) {
  const auto* launch = static_cast<const Run*>(raw);
  launch->kernel->run(launch->args, launch->blocks, launch->watch);
}

// Kernels that wait are held with the context that is paused, and end with one that has failed.
bool goes_on(void* raw) {
  const auto* context = static_cast<CUcontext>(raw);
  while (context->paused) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return context->fault == kSuccess;
}

}  // namespace

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* handle, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  if (CUresult r = enter(Call::alloc); r != kSuccess) return r;
  if (handle == nullptr || code == nullptr) return kErrorInvalidValue;
  *handle = &library;
  return kSuccess;
}

CUresult cuLibraryUnload(CUlibrary handle) {
  if (CUresult r = enter(Call::free); r != kSuccess) return r;
  return handle == &library ? kSuccess : kErrorInvalidHandle;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (handle != &library) return kErrorInvalidHandle;
  if (kernel == nullptr || name == nullptr) return kErrorInvalidValue;
  const auto found = std::find_if(std::begin(kernels), std::end(kernels), [&](const auto& known) {
    return std::strcmp(known.facts.symbol, name) == 0;
  });
  if (found == std::end(kernels)) return kErrorNotFound;
  *kernel = found;
  return kSuccess;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (kernel < std::begin(kernels) || kernel >= std::end(kernels)) return kErrorInvalidHandle;
  *function = reinterpret_cast<CUfunction>(kernel);
  return kSuccess;
}

CUresult cuFuncLoad(CUfunction function) {
  if (CUresult r = enter(Call::alloc); r != kSuccess) return r;
  return function != nullptr ? kSuccess : kErrorInvalidHandle;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (function == nullptr) return kErrorInvalidHandle;
  const bool known = attribute == kFunctionMostDynamicShared && value >= 0;
  return known ? kSuccess : kErrorInvalidValue;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                        CUstream stream, void** params, void** extra) {
  if (CUresult r = enter(Call::launch); r != kSuccess) return r;
  const auto* kernel = reinterpret_cast<const CUkern_st*>(function);
  if (kernel < std::begin(kernels) || kernel >= std::end(kernels)) return kErrorInvalidHandle;
  const bool fits = block_x == kernel->facts.threads && block_y == 1 && block_z == 1 &&
                    grid_x > 0 && grid_x < 1u << 31 && grid_y == 1 && grid_z == 1;
  if (!fits || params == nullptr || params[0] == nullptr || extra != nullptr) {
    return kErrorInvalidValue;
  }
  CUresult result = kSuccess;
  CUcontext context = context_of(stream, result);
  if (context == nullptr) return result;
  if (context != current_context()) return kErrorInvalidHandle;
  std::vector<Unit> args((kernel->facts.args_bytes + sizeof(Unit) - 1) / sizeof(Unit));
  std::memcpy(static_cast<void*>(args.data()), params[0], kernel->facts.args_bytes);
  return submit(stream, [kernel, grid_x, context, args = std::move(args)] {
    Run launch{kernel, args.data(), grid_x, {goes_on, context}};
    run_callback(run, &launch);
  });
}

}  // extern "C"

}  // namespace pith::cuda

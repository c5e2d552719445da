// Pith's kernels by name: what a library holds here, whatever image it was loaded from.
#include <algorithm>
#include <cstring>

#include "tests/cuda_stub/internal.hpp"
#include "tests/cuda_stub/kernel_table.hpp"

namespace pith::cuda {

struct CUlib_st {
  int loaded = 0;
};

namespace {

CUlib_st library;

// A kernel starts on 16 bytes, as parameters do.
struct alignas(16) Unit {
  std::byte bytes[16];
};

struct Run {
  const CUkern_st* kernel;
  const Unit* args;
  unsigned blocks;
  CUcontext context;
};

// Kernels that wait are held with the context that is paused, and end with one that has failed.
bool goes_on(void* raw) {
  const auto* context = static_cast<CUcontext>(raw);
  while (context->paused) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return context->fault == kSuccess;
}

void keep_most(std::atomic<std::uint64_t>& most, std::uint64_t now) {
  std::uint64_t known = most;
  while (now > known && !most.compare_exchange_weak(known, now)) {
  }
}

bool begins(void* raw, unsigned block) {
  auto* const context = static_cast<CUcontext>(raw);
  while (block >= context->room_for_blocks) {
    if (context->fault != kSuccess) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  keep_most(state().counters.blocks_together, ++context->blocks_together);
  return true;
}

void ends(void* raw) { --static_cast<CUcontext>(raw)->blocks_together; }

void run(void* raw) {
  const auto& launch = *static_cast<const Run*>(raw);
  const Holder holder{goes_on, begins, ends, launch.context};
  if (launch.kernel->run(*launch.kernel, launch.args, launch.blocks, holder)) return;
  launch.context->fault = kErrorLaunchFailed;
}

bool is_kernel(const CUkern_st* kernel) {
  const auto known = kernel_table();
  return kernel >= known.data() && kernel < known.data() + known.size();
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

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (handle != &library) return kErrorInvalidHandle;
  if (kernel == nullptr || name == nullptr) return kErrorInvalidValue;
  const auto known = kernel_table();
  const auto found = std::find_if(known.begin(), known.end(), [&](const CUkern_st& one) {
    return std::strcmp(one.symbol, name) == 0;
  });
  if (found == known.end()) return kErrorNotFound;
  *kernel = &*found;
  return kSuccess;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (!is_kernel(kernel)) return kErrorInvalidHandle;
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
  if (!is_kernel(kernel)) return kErrorInvalidHandle;
  const bool fits = block_x == kernel->threads && block_y == 1 && block_z == 1 && grid_x > 0 &&
                    grid_x < 1u << 31 && grid_y == 1 && grid_z == 1;
  if (!fits || params == nullptr || params[0] == nullptr || extra != nullptr) {
    return kErrorInvalidValue;
  }
  CUresult result = kSuccess;
  CUcontext context = context_of(stream, result);
  if (context == nullptr) return result;
  if (context != current_context()) return kErrorInvalidHandle;
  keep_most(state().counters.largest_grid, grid_x);
  std::vector<Unit> args((kernel->args_bytes + sizeof(Unit) - 1) / sizeof(Unit));
  std::memcpy(static_cast<void*>(args.data()), params[0], kernel->args_bytes);
  result = submit(stream, [kernel, grid_x, context, args = std::move(args)] {
    Run launch{kernel, args.data(), grid_x, context};
    run_callback(run, &launch);
  });
  CUstreamCaptureStatus status = kCaptureNone;
  const bool waits = result == kSuccess && state().launches_block &&
                     cuStreamIsCapturing(stream, &status) == kSuccess && status == kCaptureNone;
  return waits ? cuStreamSynchronize(stream) : result;
}

}  // extern "C"

}  // namespace pith::cuda

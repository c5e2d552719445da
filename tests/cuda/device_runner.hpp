// Kernels through the compute seam on the first device: the stub's, or a real one where the program
// is test_cuda_device, whose heap is pinned memory, so that kernels reach every vector.
#pragma once

#include <sched.h>

#include "cuda/cuda_compute.hpp"
#include "tests/kernels/sparse_support.hpp"

namespace pith::cuda::test {

#ifdef PITH_TEST_PINNED_HEAP
// From now on new memory is pinned.
void use_pinned_heap(const Driver& driver);
#else
inline void use_pinned_heap(const Driver&) {}
#endif

// What a kernel writes has to be on the heap.
template <class T>
using OnHeap = std::vector<T>;

// One compute whose kernels end before run() returns.
class Runner {
 public:
  Runner() {
    const Expected<const Driver*> found = cuda::driver();
    INFO(found.error().message());
    REQUIRE(found);
    const Driver& driver = **found;
    CUcontext context = nullptr;
    REQUIRE(driver.primary_ctx_retain(&context, 0) == kSuccess);
    REQUIRE(driver.ctx_set_current(context) == kSuccess);
    use_pinned_heap(driver);
    static CUstream stream = nullptr;
    if (!stream) REQUIRE(driver.stream_create(&stream, kStreamNonBlocking, 0) == kSuccess);
    const Expected<Device*> device = Device::of_stream(stream);
    REQUIRE(device);
    Expected<std::unique_ptr<CudaCompute>> made = CudaCompute::create(**device);
    INFO(made.error().message());
    REQUIRE(made);
    compute_ = std::move(*made);
  }

  template <class Kernel>
  void run(const typename Kernel::Args& args) {
    const Fence fence = compute_->run<Kernel>(args);
    while (!compute_->reached(fence)) sched_yield();
    INFO(compute_->error().message());
    REQUIRE_FALSE(compute_->error());
  }
  // Whether it fails; nothing can be run afterwards.
  template <class Kernel>
  bool refuses(const typename Kernel::Args& args) {
    const Fence fence = compute_->run<Kernel>(args);
    while (!compute_->reached(fence)) sched_yield();
    return static_cast<bool>(compute_->error());
  }

 private:
  std::unique_ptr<CudaCompute> compute_;
};

}  // namespace pith::cuda::test

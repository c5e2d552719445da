#include "cuda/kernels/worker.hpp"

namespace pith::cuda {

// Dynamic shared memory: a kernel may not declare that much statically.
extern "C" __global__ void __launch_bounds__(Worker::threads)
    pith_worker(const __grid_constant__ WorkerArgs args) {
  extern __shared__ __align__(16) std::byte shared[];
  const DeviceBlock<Worker::threads> block;
  Worker::run(block, args, *reinterpret_cast<Worker::Shared*>(shared));
}

}  // namespace pith::cuda

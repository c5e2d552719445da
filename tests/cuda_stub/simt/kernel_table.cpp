// The device's code of all kernels, on fibers. PITH_CUDA_STUB_SEED is that of the order in which
// their threads run.
#include "tests/cuda_stub/kernel_table.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "tests/cuda_stub/simt/cuda_words.hpp"

// After the words of CUDA.
#include "cuda/kernels/worker.hpp"

namespace pith::cuda {

namespace {

template <class Kernel>
void run_thread(const void* args, void* shared) {
  const DeviceBlock<Kernel::threads> block;
  Kernel::run(block, *static_cast<const typename Kernel::Args*>(args),
              *static_cast<typename Kernel::Shared*>(shared));
}

std::uint64_t next_seed() {
  static const char* const given = std::getenv("PITH_CUDA_STUB_SEED");
  static const std::uint64_t first = given ? std::strtoull(given, nullptr, 10) : 1;
  static std::atomic<std::uint64_t> launches{0};
  return first * 1000003 + launches++;
}

template <class Kernel>
bool run_on_fibers(const CUkern_st& kernel, const void* args, unsigned blocks,
                   const Holder& holder) {
  simt::Launch launch;
  launch.name = kernel.symbol;
  launch.threads = kernel.threads;
  launch.blocks = blocks;
  launch.shared_bytes = sizeof(typename Kernel::Shared);
  launch.body = run_thread<Kernel>;
  launch.args = args;
  launch.seed = next_seed();
  launch.goes_on = holder.goes_on;
  launch.of = holder.of;
  const std::string error = simt::run(launch);
  if (!error.empty()) std::fprintf(stderr, "cuda stub: %s\n", error.c_str());
  return error.empty();
}

template <class Kernel>
constexpr CUkern_st entry(const KernelFacts& facts) {
  return {facts.symbol, facts.threads, facts.args_bytes, run_on_fibers<Kernel>};
}

CUkern_st kernels[] = {
#define PITH_STUB_KERNEL(name, ...) \
  entry<__VA_ARGS__>(kernel_facts[static_cast<std::size_t>(KernelName::name)]),
    PITH_CUDA_KERNELS(PITH_STUB_KERNEL)
#undef PITH_STUB_KERNEL
        entry<Worker>(worker_facts),
};

}  // namespace

std::span<CUkern_st> kernel_table() { return kernels; }

}  // namespace pith::cuda

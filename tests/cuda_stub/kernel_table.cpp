// A launch runs the kernel's body for one block after another on the stream's thread; a worker's
// blocks, which wait for each other, run on a thread each.
#include "tests/cuda_stub/kernel_table.hpp"

#include <thread>
#include <vector>

#include "cuda/kernels/worker.hpp"

namespace pith::cuda {

namespace {

template <class Kernel>
bool run_in_order(const CUkern_st&, const void* args, unsigned blocks, const Holder& holder) {
  emulate<Kernel>(args, blocks, {holder.goes_on, holder.of});
  return true;
}

template <class Kernel>
bool run_together(const CUkern_st&, const void* args, unsigned blocks, const Holder& holder) {
  const auto run = [&](unsigned index) {
    if (!holder.begins(holder.of, index)) return;
    const Watch watch{holder.goes_on, holder.of};
    emulate_block<Kernel>(args, HostBlock<Kernel::threads>(index, blocks, watch));
    holder.ends(holder.of);
  };
  std::vector<std::jthread> threads;
  for (unsigned index = 0; index < blocks; ++index) threads.emplace_back(run, index);
  return true;
}

constexpr CUkern_st entry(const KernelFacts& facts, decltype(CUkern_st::run) run) {
  return {facts.symbol, facts.threads, facts.args_bytes, run};
}

CUkern_st kernels[] = {
#define PITH_STUB_KERNEL(name, ...) \
  entry(kernel_facts[static_cast<std::size_t>(KernelName::name)], run_in_order<__VA_ARGS__>),
    PITH_CUDA_KERNELS(PITH_STUB_KERNEL)
#undef PITH_STUB_KERNEL
        entry(worker_facts, run_together<Worker>),
};

}  // namespace

std::span<CUkern_st> kernel_table() { return kernels; }

}  // namespace pith::cuda

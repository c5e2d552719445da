// The kernels of one context. All are loaded and resolved before the first call, because loading
// may wait for the context's pending work.
// Threads: a loaded set is read-only.
#pragma once

#include <array>
#include <memory>

#include "core/error.hpp"
#include "cuda/driver_api.hpp"
#include "cuda/kernels/list.hpp"

namespace pith::cuda {

class KernelSet {
 public:
  // Precondition: the context is current. Kernels are never unloaded.
  static Expected<std::unique_ptr<KernelSet>> load(const Driver& driver);
  // The worker's kernel, loaded separately: where a driver has to compile it that takes minutes.
  static Expected<CUfunction> load_worker(const Driver& driver);

  CUfunction function(KernelName name) const { return functions_[static_cast<std::size_t>(name)]; }
  unsigned multiprocessors() const { return multiprocessors_; }
  // More blocks than this cannot run at once.
  unsigned most_blocks() const { return most_blocks_; }

 private:
  std::array<CUfunction, kernel_count> functions_{};
  unsigned multiprocessors_ = 1;
  unsigned most_blocks_ = 1;
};

}  // namespace pith::cuda

// The kernels of one context: loaded and resolved as a whole before any call needs one, because
// loading may wait for what the context was given.
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
  // The context is current. Never unloaded.
  static Expected<std::unique_ptr<KernelSet>> load(const Driver& driver);
  // The kernel of workers, which is apart: where a driver has to compile it that takes minutes.
  static Expected<CUfunction> load_worker(const Driver& driver);

  CUfunction function(KernelName name) const { return functions_[static_cast<std::size_t>(name)]; }
  unsigned multiprocessors() const { return multiprocessors_; }
  // Blocks beyond these would only wait for others to end.
  unsigned most_blocks() const { return most_blocks_; }

 private:
  std::array<CUfunction, kernel_count> functions_{};
  unsigned multiprocessors_ = 1;
  unsigned most_blocks_ = 1;
};

}  // namespace pith::cuda

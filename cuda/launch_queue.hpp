// Where launchers enqueue kernels: one in-order stream, and a workspace that successive kernels
// share. While a worker serves, steps go to its ring instead of the stream.
//
// A launcher is the function that CudaCompute registers for a kernel of the compute seam. It gets
// the kernel's arguments and enqueues on LaunchQueue::current(), the queue of the submit() that
// called it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cuda/device.hpp"
#include "cuda/kernel_set.hpp"
#include "cuda/scratch_pool.hpp"
#include "cuda/worker_queue.hpp"

namespace pith::cuda {

class LaunchQueue {
 public:
  // `workers` may be null. `most_shared` limits the blocks of kernels that touch other ranks'
  // memory: more do not make a link faster, and at the highest priority they would starve the
  // user's kernels.
  LaunchQueue(Device& device, const KernelSet& kernels, CUstream stream, ScratchPool& scratch,
              WorkerQueue* workers, unsigned most_shared)
      : driver_(device.driver()),
        kernels_(kernels),
        stream_(stream),
        scratch_(scratch),
        workers_(workers),
        most_shared_(most_shared) {}
  ~LaunchQueue();
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;

  // The queue of this thread's current submit().
  static LaunchQueue& current();

  // Runs a launcher; returns the first error of what it enqueued.
  CUresult run(void (*launcher)(const void* args), const void* args);

  // For kernels that walk their grid: `blocks` is clamped to 1 and what the device holds.
  template <class Args>
  void launch_walk(KernelName name, std::size_t blocks, const Args& args) {
    launch(name, std::min(blocks, most_blocks()), args);
  }
  // For kernels on vectors that may belong to other ranks.
  template <class Args>
  void launch_shared(KernelName name, std::size_t blocks, const Args& args) {
    launch_walk(name, by_worker() ? blocks : std::min<std::size_t>(blocks, most_shared_), args);
  }
  template <class Args>
  void launch(KernelName name, std::size_t blocks, Args args) {
    enqueue(name, blocks > 0 ? blocks : 1, &args, sizeof args);
  }
  void copy(void* to, const void* from, std::size_t bytes);
  void fill(void* to, unsigned char value, std::size_t bytes);
  // Rejects the kernel's arguments as unsupported.
  void refuse() { result_ = result_ == kSuccess ? kErrorInvalidValue : result_; }

  // Device memory until the launcher's last kernel has run; the next launcher reuses it.
  std::byte* workspace(std::size_t bytes);

 private:
  std::size_t most_blocks() const {
    return by_worker() ? workers_->most_blocks() : kernels_.most_blocks();
  }
  bool by_worker() const { return workers_ && workers_->serves(); }
  void enqueue(KernelName name, std::size_t blocks, void* args, std::size_t args_bytes);

  const Driver& driver_;
  const KernelSet& kernels_;
  const CUstream stream_;
  ScratchPool& scratch_;
  WorkerQueue* const workers_;
  const unsigned most_shared_;
  CUresult result_ = kSuccess;
  struct Memory {
    std::byte* data;
    std::size_t bytes;
  };
  std::vector<Memory> workspaces_;  // earlier ones may still be in use
};

}  // namespace pith::cuda

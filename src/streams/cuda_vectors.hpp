// Accumulators on a CUDA device, and the computation on them between calls.
#pragma once

#include <memory>
#include <mutex>

#include "compress/device_vectors.hpp"
#include "cuda/cuda_compute.hpp"
#include "kernels/host_compute.hpp"

namespace pith {

class CudaVectors final : public DeviceVectors {
 public:
  // The instance of a device. It lives as long as the process: compressors may outlive their
  // communicators.
  static Expected<CudaVectors*> of(cuda::Device& device);

  std::byte* take(std::size_t bytes) override;
  void give(std::byte* memory, std::size_t bytes) override;
  Compute& compute() override { return *waiting_; }
  Compute& pinned() override { return pinned_; }

 private:
  CudaVectors(cuda::Device& device, std::unique_ptr<cuda::CudaCompute> queue);
  ~CudaVectors() override;

  cuda::Device& device_;
  HostCompute host_;
  cuda::PinnedCompute pinned_;
  std::unique_ptr<Compute> waiting_;
};

}  // namespace pith

// Float32 of products with a vector's matrices, on their way into messages.
#pragma once

#include <algorithm>

#include "collectives/call.hpp"
#include "compress/vector_queue.hpp"

namespace pith {

// Float32 that the vectors' queue and messages both need: one memory on the host, two for a device.
class SharedFloats {
 public:
  SharedFloats(const VectorQueue& queue, std::size_t count)
      : host_(queue.host(), bytes_of(count)), count_(count) {
    if (queue.on_device()) device_ = Scratch(queue.vectors(), bytes_of(count));
  }
  float* host() const { return reinterpret_cast<float*>(host_.bytes().data); }
  float* near() const {
    return device_.bytes().data ? reinterpret_cast<float*>(device_.bytes().data) : host();
  }
  Bytes message() const { return {host_.bytes().data, count_ * sizeof(float)}; }
  // The copies that a device needs; the next kernels may read `near`, or after the fence the host.
  void to_device(const VectorQueue& queue) const {
    if (queue.on_device()) copy(queue, near(), host());
  }
  Fence to_host(const VectorQueue& queue) const {
    return queue.on_device() ? copy(queue, host(), near()) : Fence();
  }

 private:
  static std::size_t bytes_of(std::size_t count) {
    return std::max<std::size_t>(count, 1) * sizeof(float);
  }
  Fence copy(const VectorQueue& queue, float* to, const float* from) const {
    return queue.run<CopyKernel>({reinterpret_cast<std::byte*>(to),
                                  reinterpret_cast<const std::byte*>(from),
                                  count_ * sizeof(float)});
  }

  Scratch host_;
  Scratch device_;
  std::size_t count_;
};

}  // namespace pith

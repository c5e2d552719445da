// The float32 memory of a compressor: the residual between calls, gradient plus residual inside.
#pragma once

#include <cstddef>

#include "compress/device_vectors.hpp"

namespace pith {

// Zero at first; on huge pages where it is large, or on a device. Throws bad_alloc,
// and a Failure where the device refuses.
class Accumulator {
 public:
  Accumulator() = default;
  explicit Accumulator(std::size_t count, DeviceVectors* device = nullptr);
  ~Accumulator();
  Accumulator(Accumulator&& other) noexcept;
  Accumulator& operator=(Accumulator&& other) noexcept;

  float* data() const { return data_; }
  std::size_t count() const { return count_; }

 private:
  float* data_ = nullptr;
  std::size_t count_ = 0;
  DeviceVectors* device_ = nullptr;
};

}  // namespace pith

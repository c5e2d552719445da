// A compressor's float32 memory: the residual between calls, gradient plus residual within a call.
#pragma once

#include <cstddef>

#include "compress/device_vectors.hpp"

namespace pith {

struct PassResult;

// Zero-initialised; on huge pages if large, or on a device. Throws bad_alloc, or a Failure if the
// device refuses.
class Accumulator {
 public:
  Accumulator() = default;
  explicit Accumulator(std::size_t count, DeviceVectors* device = nullptr);
  ~Accumulator();
  Accumulator(Accumulator&& other) noexcept;
  Accumulator& operator=(Accumulator&& other) noexcept;

  float* data() const { return data_; }
  std::size_t count() const { return count_; }
  // In the same memory: room for the result of a pass that nobody reads.
  PassResult* result_room() const;
  // Multiplies every element; a device may refuse. `vectors` works on this memory.
  void scale(Compute& vectors, float factor) const;
  // Writes every element, to any address of the host. Between calls.
  void copy_to(std::byte* out) const;

 private:
  float* data_ = nullptr;
  std::size_t count_ = 0;
  DeviceVectors* device_ = nullptr;
};

}  // namespace pith

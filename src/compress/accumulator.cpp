#include "compress/accumulator.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

#include "core/kernel_args.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

namespace {

// Kernels may load, without using it, up to one vector beyond the last element; and there is the
// result of result_room().
constexpr std::size_t slack_bytes = 256;
constexpr std::size_t huge_bytes = std::size_t{2} << 20;

std::size_t bytes_for(std::size_t count) { return count * sizeof(float) + slack_bytes; }

std::byte* take_zeros(DeviceVectors& device, std::size_t bytes) {
  std::byte* memory = device.take(bytes);
  if (!memory) throw std::bad_alloc();
  try {
    device.compute().run<ZeroKernel>({memory, bytes});
  } catch (...) {
    device.give(memory, bytes);
    throw;
  }
  return memory;
}

}  // namespace

Accumulator::Accumulator(std::size_t count, DeviceVectors* device)
    : count_(count), device_(device) {
  if (device) {
    data_ = reinterpret_cast<float*>(take_zeros(*device, bytes_for(count)));
    return;
  }
  const std::size_t bytes = bytes_for(count);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (bytes >= huge_bytes) madvise(memory, bytes, MADV_HUGEPAGE);
  data_ = static_cast<float*>(memory);
}

Accumulator::~Accumulator() {
  if (!data_) return;
  if (device_) {
    device_->give(reinterpret_cast<std::byte*>(data_), bytes_for(count_));
  } else {
    munmap(data_, bytes_for(count_));
  }
}

PassResult* Accumulator::result_room() const {
  const std::size_t end = count_ + count_ % 2;
  static_assert(alignof(PassResult) <= 2 * sizeof(float));
  return reinterpret_cast<PassResult*>(data_ + end);
}

void Accumulator::scale(Compute& vectors, float factor) const {
  if (!data_) return;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &factor, sizeof factor);
  auto* const data = reinterpret_cast<std::byte*>(data_);
  vectors.run<ScaleKernel>({data, data, count_, DType::f32, {bits}});
}

void Accumulator::copy_to(std::byte* out) const {
  const std::size_t bytes = count_ * sizeof(float);
  if (bytes == 0) return;
  const auto* data = reinterpret_cast<const std::byte*>(data_);
  if (!device_) return void(std::memmove(out, data, bytes));
  device_->compute().run<CopyKernel>({out, data, bytes});
}

Accumulator::Accumulator(Accumulator&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      count_(std::exchange(other.count_, 0)),
      device_(other.device_) {}

Accumulator& Accumulator::operator=(Accumulator&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(count_, other.count_);
  std::swap(device_, other.device_);
  return *this;
}

}  // namespace pith

#include "compress/accumulator.hpp"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "core/sparse_kernel_args.hpp"

namespace pith {

namespace {

// Kernels may load, without using it, up to one vector beyond the last element.
constexpr std::size_t slack_bytes = 256;
constexpr std::size_t huge_bytes = std::size_t{2} << 20;

std::size_t mapped_bytes(std::size_t count) { return count * sizeof(float) + slack_bytes; }

// At least one element: drivers refuse allocations of zero bytes.
std::size_t device_bytes(std::size_t count) { return (count > 0 ? count : 1) * sizeof(float); }

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
    data_ = reinterpret_cast<float*>(take_zeros(*device, device_bytes(count)));
    return;
  }
  const std::size_t bytes = mapped_bytes(count);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (bytes >= huge_bytes) madvise(memory, bytes, MADV_HUGEPAGE);
  data_ = static_cast<float*>(memory);
}

Accumulator::~Accumulator() {
  if (!data_) return;
  if (device_) {
    device_->give(reinterpret_cast<std::byte*>(data_), device_bytes(count_));
  } else {
    munmap(data_, mapped_bytes(count_));
  }
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

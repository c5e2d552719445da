// Shared by the tests of kernel bodies: every kernel by name, run block after block.
#pragma once

#include "cuda/kernels/list.hpp"
#include "tests/kernels/support.hpp"

namespace pith::cuda::test {

using Emulation = void (*)(const void* args, unsigned blocks);

template <class Kernel>
void run_alone(const void* args, unsigned blocks) {
  emulate<Kernel>(args, blocks);
}

inline constexpr Emulation emulations[] = {
#define PITH_TEST_KERNEL(name, ...) run_alone<__VA_ARGS__>,
    PITH_CUDA_KERNELS(PITH_TEST_KERNEL)
#undef PITH_TEST_KERNEL
};

inline Emulation kernel(const std::string& name) {
  for (std::size_t i = 0; i < kernel_count; ++i) {
    if ("pith_" + name == kernel_facts[i].symbol) return emulations[i];
  }
  FAIL("no kernel " << name);
  return nullptr;
}

inline std::string short_name(DType type) {
  constexpr const char* names[] = {"i8",  "u8",  "i32", "u32",  "i64",    "u64",
                                   "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
  return names[static_cast<int>(type)];
}

// Aligned as allocations of a device are, with `offset` bytes before the data.
struct Buffer {
  using Memory = std::vector<std::byte>;
  explicit Buffer(std::size_t bytes) : memory(bytes + 256) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    data = memory.data() + (256 - address % 256) % 256;
  }
  Buffer(const Memory& from, std::size_t offset) : Buffer(from.size() + offset) {
    data += offset;
    if (!from.empty()) std::memcpy(data, from.data(), from.size());
  }
  Buffer(const Buffer&) = delete;
  Memory memory;
  std::byte* data;
};

}  // namespace pith::cuda::test

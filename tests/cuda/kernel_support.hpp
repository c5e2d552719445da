// Shared by the tests of kernel bodies: every kernel by name, run block after block; or, in a
// program of its own, by the driver.
#pragma once

#include "cuda/kernels/list.hpp"
#include "tests/kernels/support.hpp"

#ifdef PITH_TEST_LAUNCHED
#include "tests/cuda_stub/fixture.hpp"
#endif

namespace pith::cuda::test {

#ifdef PITH_TEST_LAUNCHED

// Launches the kernel and waits for it.
class RunnableKernel {
 public:
  explicit RunnableKernel(const KernelFacts& facts) : facts_(facts) {
    static const Device device;
    CUlibrary library = nullptr;
    OK(cu().library_load(&library, "any image", nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel kernel = nullptr;
    OK(cu().library_kernel(&kernel, library, facts.symbol));
    OK(cu().kernel_function(&function_, kernel));
  }
  void operator()(const void* args, unsigned blocks) const {
    static const Stream stream;
    void* params[] = {const_cast<void*>(args)};
    OK(cu().launch_kernel(function_, blocks, 1, 1, facts_.threads, 1, 1, 0, stream, params,
                          nullptr));
    OK(cu().stream_synchronize(stream));
  }

 private:
  const KernelFacts& facts_;
  CUfunction function_ = nullptr;
};

inline RunnableKernel kernel(const std::string& name) {
  for (const KernelFacts& facts : kernel_facts) {
    if ("pith_" + name == facts.symbol) return RunnableKernel(facts);
  }
  throw std::runtime_error("no kernel " + name);
}

#else

using RunnableKernel = void (*)(const void* args, unsigned blocks);

template <class Kernel>
void run_alone(const void* args, unsigned blocks) {
  emulate<Kernel>(args, blocks);
}

inline constexpr RunnableKernel emulations[] = {
#define PITH_TEST_KERNEL(name, ...) run_alone<__VA_ARGS__>,
    PITH_CUDA_KERNELS(PITH_TEST_KERNEL)
#undef PITH_TEST_KERNEL
};

inline RunnableKernel kernel(const std::string& name) {
  for (std::size_t i = 0; i < kernel_count; ++i) {
    if ("pith_" + name == kernel_facts[i].symbol) return emulations[i];
  }
  FAIL("no kernel " << name);
  return nullptr;
}

#endif

inline std::string short_name(DType type) {
  constexpr const char* names[] = {"i8",  "u8",  "i32",  "u32",    "i64",    "u64", "f16",
                                   "f32", "f64", "bf16", "f8e4m3", "f8e5m2", "c64", "c128"};
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

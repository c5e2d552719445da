// A thread block as a kernel's body sees it: the same body is a kernel on a device and a loop on
// the host.
//
//  block.each([&](unsigned thread) {...});   what every thread does between two barriers
//  typename Block::template PerThread<T> x;  what a thread keeps between them: x[thread]
//  block.sync();                             the barrier
//
// Code outside `each` is uniform: all threads do the same. On the host `each` is a loop over the
// threads, and blocks run one after another in order, or each on its own host thread.
#pragma once

#include <array>

#ifndef __CUDACC__
#include <chrono>
#include <thread>
#endif

#include "cuda/kernels/platform.hpp"

namespace pith::cuda {

// Memory accesses for which CUDA has no function. An emulation of device threads on the host
// (tests/cuda_stub/simt) brings its own.
#if defined(__CUDACC__) && !defined(PITH_SIMT)
template <class Word>
__device__ __forceinline__ Word load_volatile(const Word* word) {
  return *static_cast<const volatile Word*>(word);
}
__device__ __forceinline__ void store_volatile(std::uint64_t* word, std::uint64_t value) {
  *static_cast<volatile std::uint64_t*>(word) = value;
}
__device__ __forceinline__ std::uint64_t load_acquire_system(const std::uint64_t* word) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ std::uint64_t load_relaxed_system(const std::uint64_t* word) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed_system(std::uint64_t* word, std::uint64_t value) {
  asm volatile("st.relaxed.sys.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ void store_release_system(std::uint64_t* word, std::uint64_t value) {
  asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
#endif

// Words that the blocks of a launch share across the device; nvcc uses its atomics.
PITH_DEVICE std::uint64_t add_global(std::uint64_t* word, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  return atomicAdd(reinterpret_cast<unsigned long long*>(word), value);
#else
  return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
#endif
}
PITH_DEVICE std::uint32_t add_shared(std::uint32_t* word, std::uint32_t value) {
#ifdef __CUDA_ARCH__
  return atomicAdd(word, value);
#else
  const std::uint32_t old = *word;
  *word += value;
  return old;
#endif
}
PITH_DEVICE std::uint64_t add_shared(std::uint64_t* word, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  return add_global(word, value);
#else
  const std::uint64_t old = *word;
  *word += value;
  return old;
#endif
}
PITH_DEVICE void or_shared(std::uint32_t* word, std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  atomicOr(word, bits);
#else
  *word |= bits;
#endif
}
// For a word in which other threads set bits meanwhile.
PITH_DEVICE std::uint32_t load_shared(const std::uint32_t* word) {
#ifdef __CUDA_ARCH__
  return load_volatile(word);
#else
  return *word;
#endif
}
// Bypasses the multiprocessor's own caches. On a device ordered only by fence_global(); on the host
// the access itself orders.
PITH_DEVICE std::uint64_t load_fresh(const std::uint64_t* word) {
#ifdef __CUDA_ARCH__
  return load_volatile(word);
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}
PITH_DEVICE void store_fresh(std::uint64_t* word, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  store_volatile(word, value);
#else
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}
PITH_DEVICE void fence_global() {
#ifdef __CUDA_ARCH__
  __threadfence();
#endif
}

// Orders the earlier accesses of a warp's lanes before their later ones. All lanes call it.
PITH_DEVICE void sync_warp() {
#ifdef __CUDA_ARCH__
  __syncwarp();
#endif
}

// Words that the host reads and writes while a kernel runs.
PITH_DEVICE std::uint64_t load_system(const std::uint64_t* word) {
#ifdef __CUDA_ARCH__
  return load_acquire_system(word);
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}
PITH_DEVICE void store_system(std::uint64_t* word, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  store_release_system(word, value);
#else
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

// Unordered variants, ordered only by fence_system(), so that loads of several words cross the bus
// together. On the host the access itself orders.
PITH_DEVICE std::uint64_t peek_system(const std::uint64_t* word) {
#ifdef __CUDA_ARCH__
  return load_relaxed_system(word);
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}
PITH_DEVICE void poke_system(std::uint64_t* word, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  store_relaxed_system(word, value);
#else
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}
PITH_DEVICE void fence_system() {
#ifdef __CUDA_ARCH__
  __threadfence_system();
#endif
}

// In loops that wait for another block, which on the host may be a thread.
PITH_DEVICE void yield_to_others() {
#ifndef __CUDACC__
  std::this_thread::yield();
#endif
}

PITH_DEVICE unsigned bits_set(std::uint32_t word) {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned>(__popc(word));
#else
  return static_cast<unsigned>(__builtin_popcount(word));
#endif
}
PITH_DEVICE unsigned lowest_bit(std::uint32_t word) {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned>(__ffs(static_cast<int>(word))) - 1;
#else
  return static_cast<unsigned>(__builtin_ctz(word));
#endif
}

// Shared memory for sums across a block's warps.
struct WarpSums {
  std::uint64_t words[33];
  double reals[33];
};

#ifndef __CUDACC__

// Lets the code that runs kernels on the host stop kernels that wait; it may block in the call.
struct Watch {
  bool (*goes_on)(void* of) = nullptr;  // null: always
  void* of = nullptr;
};

template <unsigned kThreads>
class HostBlock {
 public:
  static constexpr unsigned threads = kThreads;
  template <class T>
  using PerThread = std::array<T, kThreads>;

  HostBlock(unsigned index, unsigned count, const Watch& watch = {})
      : index_(index), count_(count), watch_(watch) {}
  unsigned index() const { return index_; }
  unsigned count() const { return count_; }
  // Between two polls of a word that others write. False: it will not be written any more.
  bool rest(unsigned looks) const {
    if (looks > 64) std::this_thread::sleep_for(std::chrono::microseconds(looks > 512 ? 100 : 20));
    std::this_thread::yield();
    return !watch_.goes_on || watch_.goes_on(watch_.of);
  }

  template <class Body>
  void each(Body body) const {
    for (unsigned thread = 0; thread < kThreads; ++thread) body(thread);
  }
  void sync() const {}

  // values[t] becomes the sum of the values of lower threads; returns the sum of all.
  std::uint64_t exclusive_sum(PerThread<std::uint64_t>& values, WarpSums&) const {
    std::uint64_t sum = 0;
    for (std::uint64_t& value : values) {
      const std::uint64_t own = value;
      value = sum;
      sum += own;
    }
    return sum;
  }
  // In the order of additions of the device's warps.
  double sum(PerThread<double>& values, WarpSums&) const {
    for (unsigned warp = 0; warp < kThreads; warp += 32) {
      for (unsigned step = 16; step > 0; step /= 2) {
        for (unsigned lane = 0; lane < step; ++lane) {
          values[warp + lane] += values[warp + lane + step];
        }
      }
    }
    double all = 0;
    for (unsigned warp = 0; warp < kThreads; warp += 32) all += values[warp];
    return all;
  }
  bool any(const PerThread<bool>& values) const {
    for (const bool value : values) {
      if (value) return true;
    }
    return false;
  }

 private:
  unsigned index_;
  unsigned count_;
  Watch watch_;
};

#else

template <unsigned kThreads>
class DeviceBlock {
 public:
  static constexpr unsigned threads = kThreads;
  template <class T>
  struct PerThread {
    T value;
    __device__ __forceinline__ T& operator[](unsigned) { return value; }
    __device__ __forceinline__ const T& operator[](unsigned) const { return value; }
  };

  __device__ __forceinline__ unsigned index() const { return blockIdx.x; }
  __device__ __forceinline__ unsigned count() const { return gridDim.x; }
  // On a device always true: the driver ends kernels itself.
  __device__ __forceinline__ bool rest(unsigned looks) const {
    if (looks > 16) __nanosleep(64);
    return true;
  }

  template <class Body>
  __device__ __forceinline__ void each(Body body) const {
    body(threadIdx.x);
  }
  __device__ __forceinline__ void sync() const { __syncthreads(); }

  __device__ __forceinline__ std::uint64_t exclusive_sum(PerThread<std::uint64_t>& values,
                                                         WarpSums& room) const {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    unsigned long long sum = values.value;
    PITH_UNROLL
    for (unsigned step = 1; step < 32; step *= 2) {
      const unsigned long long below = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += below;
    }
    __syncthreads();  // the room may still be read from the previous sum
    if (lane == 31) room.words[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      std::uint64_t all = 0;
      for (unsigned w = 0; w < kThreads / 32; ++w) {
        const std::uint64_t own = room.words[w];
        room.words[w] = all;
        all += own;
      }
      room.words[32] = all;
    }
    __syncthreads();
    values.value = room.words[warp] + sum - values.value;
    return room.words[32];
  }

  __device__ __forceinline__ double sum(PerThread<double>& values, WarpSums& room) const {
    double sum = values.value;
    PITH_UNROLL
    for (unsigned step = 16; step > 0; step /= 2) {
      sum += __shfl_down_sync(0xffffffffu, sum, step);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) room.reals[threadIdx.x / 32] = sum;
    __syncthreads();
    double all = 0;
    for (unsigned w = 0; w < kThreads / 32; ++w) all += room.reals[w];
    return all;
  }

  __device__ __forceinline__ bool any(const PerThread<bool>& values) const {
    return __syncthreads_or(values.value) != 0;
  }
};

// Defines a kernel from a struct with `Args`, `threads`, `Shared` (trivial) and a static `run`.
#define PITH_CUDA_GLOBAL(name, ...)                                   \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__::threads)  \
      name(const __grid_constant__ typename __VA_ARGS__::Args args) { \
    __shared__ typename __VA_ARGS__::Shared shared;                   \
    const pith::cuda::DeviceBlock<__VA_ARGS__::threads> block;        \
    __VA_ARGS__::run(block, args, shared);                            \
  }

#endif

#ifndef __CUDACC__

template <class Kernel>
void emulate_block(const void* args, const HostBlock<Kernel::threads>& block) {
  typename Kernel::Shared shared;
  memset(static_cast<void*>(&shared), 0xcd, sizeof shared);  // uninitialised on a device
  Kernel::run(block, *static_cast<const typename Kernel::Args*>(args), shared);
}

// Runs a kernel's whole grid on this thread.
template <class Kernel>
void emulate(const void* args, unsigned blocks, const Watch& watch = {}) {
  for (unsigned index = 0; index < blocks; ++index) {
    emulate_block<Kernel>(args, HostBlock<Kernel::threads>(index, blocks, watch));
  }
}

#endif

}  // namespace pith::cuda

// The words of CUDA that kernels use, for the host's compiler: a source that includes this before
// the kernels compiles what nvcc compiles for a device, and pith::simt::run() runs it with a fiber
// for every thread. Such sources are a library of their own: in one with the host's emulation the
// same functions would have two bodies.
#pragma once

// Some of the words are names in the standard library, which is therefore included first.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/cuda_stub/simt/grid.hpp"

// NOLINTBEGIN(bugprone-reserved-identifier): they are CUDA's.
#define PITH_SIMT 1
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

inline constexpr struct {
  struct {
    operator unsigned() const { return pith::simt::thread_index(); }
  } x;
} threadIdx{};
inline constexpr struct {
  struct {
    operator unsigned() const { return pith::simt::block_index(); }
  } x;
} blockIdx{};
inline constexpr struct {
  struct {
    operator unsigned() const { return pith::simt::block_count(); }
  } x;
} gridDim{};

inline void __syncthreads() { pith::simt::barrier(); }
inline int __syncthreads_or(int value) { return pith::simt::barrier_or(value != 0) ? 1 : 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) { pith::simt::sync_warp(mask); }
inline void __threadfence() { pith::simt::fence(); }
inline void __threadfence_system() { pith::simt::fence(); }
inline void __nanosleep(unsigned) { pith::simt::rest(); }

inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline int __ffs(int word) { return __builtin_ffs(word); }

// Lanes beyond the warp's ends keep their own.
template <class T>
T pith_shuffle(unsigned mask, T value, unsigned from) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = pith::simt::shuffle(mask, bits, from < 32 ? from : threadIdx.x % 32);
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  return pith_shuffle(mask, value, threadIdx.x % 32 - by);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  return pith_shuffle(mask, value, threadIdx.x % 32 + by);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned by) {
  return pith_shuffle(mask, value, (threadIdx.x % 32) ^ by);
}
inline unsigned __ballot_sync(unsigned mask, int value) {
  return pith::simt::vote(mask, value != 0);
}

// Atomic, and in no order: that is what fences are for.
template <class T>
T atomicAdd(T* word, std::type_identity_t<T> value) {
  pith::simt::may_switch();
  const T old = __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
  pith::simt::modifies(word);
  return old;
}
template <class T>
T atomicOr(T* word, std::type_identity_t<T> bits) {
  pith::simt::may_switch();
  const T old = __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
  pith::simt::modifies(word);
  return old;
}
// NOLINTEND(bugprone-reserved-identifier)

namespace pith::cuda {

// As block.hpp has them for a device.
template <class Word>
Word load_volatile(const Word* word) {
  simt::may_switch();
  const Word value = __atomic_load_n(word, __ATOMIC_RELAXED);
  simt::has_read(word);
  return value;
}
inline void store_volatile(std::uint64_t* word, std::uint64_t value) {
  simt::may_switch();
  simt::writes(word);
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
inline std::uint64_t load_acquire_system(const std::uint64_t* word) {
  simt::may_switch();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline void store_release_system(std::uint64_t* word, std::uint64_t value) {
  simt::may_switch();
  simt::may_be_late();
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
// No weaker here: thread sanitizers know no fences that would make up for it.
inline std::uint64_t load_relaxed_system(const std::uint64_t* word) {
  return load_acquire_system(word);
}
inline void store_relaxed_system(std::uint64_t* word, std::uint64_t value) {
  store_release_system(word, value);
}

}  // namespace pith::cuda

// Compiles one source as a device function under nvcc and as a plain function elsewhere, where
// tests and the stub driver run the same lines.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define PITH_DEVICE __host__ __device__ __forceinline__
#define PITH_KERNEL __device__ __forceinline__
#define PITH_KERNEL_CALL __device__ __noinline__
#define PITH_UNROLL _Pragma("unroll")
#else
#define PITH_DEVICE inline
#define PITH_KERNEL inline
#define PITH_KERNEL_CALL inline
#define PITH_UNROLL
#endif

namespace pith::cuda {

template <class To, class From>
PITH_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

inline constexpr std::size_t words_bytes = 16;  // a thread's widest access

PITH_DEVICE std::size_t misalignment(const void* memory, std::size_t alignment) {
  return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(memory) % alignment);
}

// A device traps on an unaligned access; the host would not.
PITH_DEVICE void require_aligned([[maybe_unused]] const void* memory,
                                 [[maybe_unused]] std::size_t alignment) {
#ifndef __CUDA_ARCH__
  if (misalignment(memory, alignment) != 0) __builtin_trap();
#endif
}

// Elements moved by one access: 1, 2, 4, 8 or 16 bytes in total, aligned to their size.
template <class T, unsigned kLanes>
struct alignas(sizeof(T) * kLanes) Pack {
  T lane[kLanes];
};

template <class T, unsigned kLanes>
PITH_DEVICE Pack<T, kLanes> load_pack(const std::byte* from) {
  Pack<T, kLanes> pack;
#ifdef __CUDA_ARCH__
  if constexpr (sizeof pack == 16) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    memcpy(&pack, &words, sizeof pack);
    return pack;
  } else if constexpr (sizeof pack == 8) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    memcpy(&pack, &words, sizeof pack);
    return pack;
  } else if constexpr (sizeof pack == 4) {
    const unsigned word = *reinterpret_cast<const unsigned*>(from);
    memcpy(&pack, &word, sizeof pack);
    return pack;
  }
#endif
  require_aligned(from, sizeof pack);
  memcpy(&pack, from, sizeof pack);
  return pack;
}

template <class T, unsigned kLanes>
PITH_DEVICE void store_pack(std::byte* to, const Pack<T, kLanes>& pack) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof pack == 16) {
    uint4 words;
    memcpy(&words, &pack, sizeof pack);
    *reinterpret_cast<uint4*>(to) = words;
    return;
  } else if constexpr (sizeof pack == 8) {
    uint2 words;
    memcpy(&words, &pack, sizeof pack);
    *reinterpret_cast<uint2*>(to) = words;
    return;
  } else if constexpr (sizeof pack == 4) {
    unsigned word;
    memcpy(&word, &pack, sizeof pack);
    *reinterpret_cast<unsigned*>(to) = word;
    return;
  }
#endif
  require_aligned(to, sizeof pack);
  memcpy(to, &pack, sizeof pack);
}

// The 16 bytes at offset `shift` (1 to 15) of two consecutive words.
using FourWords = Pack<std::uint32_t, 4>;
PITH_DEVICE FourWords join(const FourWords& low, const FourWords& high, unsigned shift) {
  // Selected in steps of twos and ones: an array with a variable index would be put in memory.
  const std::uint32_t all[8] = {low.lane[0],  low.lane[1],  low.lane[2],  low.lane[3],
                                high.lane[0], high.lane[1], high.lane[2], high.lane[3]};
  std::uint32_t six[6];
  std::uint32_t five[5];
  PITH_UNROLL
  for (unsigned i = 0; i < 6; ++i) six[i] = (shift & 8) != 0 ? all[i + 2] : all[i];
  PITH_UNROLL
  for (unsigned i = 0; i < 5; ++i) five[i] = (shift & 4) != 0 ? six[i + 1] : six[i];
  const unsigned bits = 8 * (shift & 3);
  FourWords joined;
  PITH_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint64_t both = std::uint64_t{five[i + 1]} << 32 | five[i];
    joined.lane[i] = static_cast<std::uint32_t>(both >> bits);
  }
  return joined;
}

// One element; `aligned`: the array is aligned to the size of its elements.
template <class T>
PITH_DEVICE T load_element(const std::byte* from, std::size_t i, bool aligned) {
#ifdef __CUDA_ARCH__
  if (aligned) return reinterpret_cast<const T*>(from)[i];
#endif
  T value;
  if (aligned) require_aligned(from, sizeof(T));
  memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
PITH_DEVICE void store_element(std::byte* to, std::size_t i, T value, bool aligned) {
#ifdef __CUDA_ARCH__
  if (aligned) {
    reinterpret_cast<T*>(to)[i] = value;
    return;
  }
#endif
  if (aligned) require_aligned(to, sizeof(T));
  memcpy(to + i * sizeof(T), &value, sizeof(T));
}

// Rounded once, whatever nvcc is told about precision.
PITH_DEVICE float square_root(float value) {
#if defined(__CUDA_ARCH__) && !defined(PITH_SIMT)
  return __fsqrt_rn(value);
#else
  return std::sqrt(value);
#endif
}

// <algorithm> has no device functions.
template <class T>
PITH_DEVICE T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
PITH_DEVICE T larger(T a, T b) {
  return a < b ? b : a;
}

}  // namespace pith::cuda

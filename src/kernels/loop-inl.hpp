// The loop around every element-wise kernel; included once per SIMD target.
//
// A kernel is a function object, vector = kernel(d, a, b), on whole vectors of D's lanes.
#if defined(PITH_KERNELS_LOOP_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef PITH_KERNELS_LOOP_INL
#undef PITH_KERNELS_LOOP_INL
#else
#define PITH_KERNELS_LOOP_INL
#endif

#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/combine.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Indices count elements, but addresses are computed in bytes: buffers need not be aligned to the
// type.
template <class D>
HWY_INLINE hn::Vec<D> load_at(D d, const std::byte* bytes, std::size_t index) {
  using T = hn::TFromD<D>;
  return hn::LoadU(d, reinterpret_cast<const T*>(bytes + index * sizeof(T)));
}

template <class D>
HWY_INLINE void store_at(D d, hn::Vec<D> v, std::byte* bytes, std::size_t index) {
  using T = hn::TFromD<D>;
  hn::StoreU(v, d, reinterpret_cast<T*>(bytes + index * sizeof(T)));
}

template <class D, class Kernel>
HWY_INLINE hn::Vec<D> combine_at(D d, const Kernel& kernel, const Combine& call, std::size_t i) {
  return kernel(d, load_at(d, call.a, i), load_at(d, call.b, i));
}

template <class D>
HWY_INLINE void store_both(D d, hn::Vec<D> v, const Combine& call, std::size_t i) {
  store_at(d, v, call.out, i);
  if (call.second_out != nullptr) store_at(d, v, call.second_out, i);
}

// Fewer elements than a vector has: uses padded copies, so that no kernel needs a scalar form.
template <class D, class Kernel>
void run_short(D d, const Kernel& kernel, const Combine& call) {
  alignas(HWY_MAX_BYTES) std::byte a[HWY_MAX_BYTES] = {};
  alignas(HWY_MAX_BYTES) std::byte b[HWY_MAX_BYTES] = {};
  const std::size_t bytes = call.count * sizeof(hn::TFromD<D>);
  if (bytes == 0) return;
  std::memcpy(a, call.a, bytes);
  std::memcpy(b, call.b, bytes);
  store_at(d, kernel(d, load_at(d, a, 0), load_at(d, b, 0)), a, 0);
  std::memcpy(call.out, a, bytes);
  if (call.second_out != nullptr) std::memcpy(call.second_out, a, bytes);
}

// The last vector ends at the end of the buffer and may overlap the one before. It is computed
// before anything is stored, as in-place operation would overwrite its inputs.
template <bool kUnroll, class D, class Kernel>
void run_cached(D d, const Kernel& kernel, const Combine& call) {
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t last = call.count - lanes;
  const auto tail = combine_at(d, kernel, call, last);
  std::size_t i = 0;
  if constexpr (kUnroll) {
    for (; i + 2 * lanes <= last; i += 2 * lanes) {
      const auto first = combine_at(d, kernel, call, i);
      const auto second = combine_at(d, kernel, call, i + lanes);
      store_at(d, first, call.out, i);
      store_at(d, second, call.out, i + lanes);
    }
  }
  for (; i < last; i += lanes) store_at(d, combine_at(d, kernel, call, i), call.out, i);
  store_at(d, tail, call.out, last);
}

// Like run_cached, for two outputs or for streaming. Streaming writes whole aligned vectors, so the
// first vector is treated like the last one. Two outputs that differ in alignment are not streamed.
template <class D, class Kernel>
void run_general(D d, const Kernel& kernel, const Combine& call) {
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t last = call.count - lanes;
  const auto head = combine_at(d, kernel, call, 0);
  const auto tail = combine_at(d, kernel, call, last);

  using T = hn::TFromD<D>;
  const std::size_t vector_bytes = lanes * sizeof(T);
  const auto misaligned = [=](const std::byte* p) HWY_ATTR {
    return reinterpret_cast<std::uintptr_t>(p) % vector_bytes;
  };
  const std::size_t to_boundary = (vector_bytes - misaligned(call.out)) % vector_bytes;
  const bool together =
      call.second_out == nullptr || misaligned(call.second_out) == misaligned(call.out);
  const bool streams = call.stores == Stores::streaming && together && to_boundary % sizeof(T) == 0;
  for (std::size_t i = streams ? to_boundary / sizeof(T) : 0; i + lanes <= call.count; i += lanes) {
    const auto v = combine_at(d, kernel, call, i);
    if (!streams) {
      store_both(d, v, call, i);
      continue;
    }
    hn::Stream(v, d, reinterpret_cast<T*>(call.out + i * sizeof(T)));
    if (call.second_out == nullptr) continue;
    hn::Stream(v, d, reinterpret_cast<T*>(call.second_out + i * sizeof(T)));
  }
  if (streams) hwy::FlushStream();
  store_both(d, head, call, 0);
  store_both(d, tail, call, last);
}

// kUnroll pays for kernels of a few instructions; for long ones it only adds code.
template <class T, bool kUnroll = true, class Kernel>
void run(const Kernel& kernel, const Combine& call) {
  const hn::ScalableTag<T> d;
  if (call.count < hn::Lanes(d)) return run_short(d, kernel, call);
  if (call.stores == Stores::cached && call.second_out == nullptr) {
    return run_cached<kUnroll>(d, kernel, call);
  }
  run_general(d, kernel, call);
}

// Calls body(0) to body(n - 1) with constants: shifts by a constant take one instruction, and gcc
// 12 leaves a loop a loop.
template <std::size_t n, class Body>
HWY_INLINE void unrolled(const Body& body) {
  [&]<std::size_t... k>(std::index_sequence<k...>) HWY_ATTR {
    (body(std::integral_constant<std::size_t, k>()), ...);
  }
  (std::make_index_sequence<n>());
}

}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

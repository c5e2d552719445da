// Values of the three types that compression supports, as vectors of float32; included once per
// SIMD target, but not for HWY_SCALAR.
#if defined(PITH_KERNELS_VALUES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef PITH_KERNELS_VALUES_INL
#undef PITH_KERNELS_VALUES_INL
#else
#define PITH_KERNELS_VALUES_INL
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/dtype.hpp"
#include "hwy/highway.h"
#include "kernels/loop-inl.hpp"
#include "kernels/narrow-inl.hpp"
#include "kernels/set_bits.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

using Integers = hn::RebindToSigned<Words>;
using Integer = hn::Vec<Integers>;
using Doubles = hn::ScalableTag<double>;
using Double = hn::Vec<Doubles>;

// Magnitude bits: as integers they order as the magnitudes do, infinities and NaNs last.
HWY_INLINE Integer magnitude(Float v) {
  return hn::BitCast(Integers(), hn::And(as_word(v), constant(0x7fffffffu)));
}

template <DType kType>
HWY_INLINE Float load_values(const std::byte* values, std::size_t i) {
  if constexpr (kType == DType::f32) return load_at(Floats(), values, i);
  using Format = std::conditional_t<kType == DType::bf16, Bfloat16, Float16>;
  return widen<Format>(load_at(Codes<Format>(), values, i));
}

// Clips to +-`most`; a NaN stays.
HWY_INLINE Float clip(Float v, float most) {
  const Float largest = hn::Set(Floats(), most);
  const Float clipped = hn::Min(hn::Max(v, hn::Neg(largest)), largest);
  return hn::IfThenElse(hn::Eq(v, v), clipped, v);
}

// Rounds once; clips to the type's largest number where `kClip`.
template <DType kType, bool kClip>
HWY_INLINE void store_values(Float v, std::byte* values, std::size_t i) {
  if constexpr (kType == DType::f32) {
    store_at(Floats(), v, values, i);
  } else if constexpr (kType == DType::bf16) {
    if constexpr (kClip) v = clip(v, largest_bf16);
    store_at(Codes<Bfloat16>(), narrow<Bfloat16>(v), values, i);
  } else {
    if constexpr (kClip) v = clip(v, largest_f16);
    store_at(Codes<Float16>(), narrow<Float16>(v), values, i);
  }
}

// Moves the lanes of the mask to the front, in order. Made once and applied to several vectors.
// Highway's own Compress copies its tables to the stack at every call when gcc 12 compiles it for
// AVX2 and SSE4 [measured: 60 cycles].
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
struct Compression {
  decltype(hn::IndicesFromVec(Words(), Word())) lanes;
  std::size_t count;

  explicit HWY_INLINE Compression(hn::Mask<Integers> mask) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(Integers(), mask, bits);
    const hn::Rebind<std::uint8_t, Words> bytes;
    lanes = hn::IndicesFromVec(Words(),
                               hn::PromoteTo(Words(), hn::LoadU(bytes, set_bits[bits[0]].data())));
    count = static_cast<std::size_t>(std::popcount(bits[0]));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> v) const {
    return hn::BitCast(d, hn::TableLookupLanes(hn::BitCast(Words(), v), lanes));
  }
};
#else
struct Compression {
  hn::Mask<Integers> mask;
  std::size_t count;

  explicit HWY_INLINE Compression(hn::Mask<Integers> lanes)
      : mask(lanes), count(hn::CountTrue(Integers(), lanes)) {}
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> v) const {
    return hn::Compress(v, hn::RebindMask(d, mask));
  }
};
#endif

// sum0 and sum1 += the squares of v, in float64.
HWY_INLINE void add_squares(Float v, Double& sum0, Double& sum1) {
  const hn::Half<Floats> half;
  const Double low = hn::PromoteTo(Doubles(), hn::LowerHalf(half, v));
  const Double high = hn::PromoteTo(Doubles(), hn::UpperHalf(half, v));
  sum0 = hn::MulAdd(low, low, sum0);
  sum1 = hn::MulAdd(high, high, sum1);
}

HWY_INLINE double total(Double sum0, Double sum1) {
  return hn::GetLane(hn::SumOfLanes(Doubles(), hn::Add(sum0, sum1)));
}

// out[0, n) = the values from `i` on.
template <DType kType>
HWY_INLINE void widen_block(float* out, const std::byte* values, std::size_t i, std::size_t n) {
  constexpr std::size_t element = size_of(kType);
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t done = 0;
  for (; done + lanes <= n; done += lanes) {
    hn::StoreU(load_values<kType>(values, i + done), Floats(), out + done);
  }
  if (done == n) return;
  HWY_ALIGN std::byte narrow_rest[HWY_MAX_BYTES] = {};
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)];
  std::memcpy(narrow_rest, values + (i + done) * element, (n - done) * element);
  hn::StoreU(load_values<kType>(narrow_rest, 0), Floats(), rest);
  std::memcpy(out + done, rest, (n - done) * sizeof(float));
}

// The values from `i` on = in[0, n), rounded once.
template <DType kType, bool kClip>
HWY_INLINE void narrow_block(std::byte* values, std::size_t i, const float* in, std::size_t n) {
  constexpr std::size_t element = size_of(kType);
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t done = 0;
  for (; done + lanes <= n; done += lanes) {
    store_values<kType, kClip>(hn::LoadU(Floats(), in + done), values, i + done);
  }
  if (done == n) return;
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN std::byte narrow_rest[HWY_MAX_BYTES];
  std::memcpy(rest, in + done, (n - done) * sizeof(float));
  store_values<kType, kClip>(hn::LoadU(Floats(), rest), narrow_rest, 0);
  std::memcpy(values + (i + done) * element, narrow_rest, (n - done) * element);
}

// Calls `body` with the type as a compile-time constant.
template <class Body>
HWY_INLINE void with_type(DType type, const Body& body) {
  if (type == DType::f32) return body(std::integral_constant<DType, DType::f32>());
  if (type == DType::bf16) return body(std::integral_constant<DType, DType::bf16>());
  return body(std::integral_constant<DType, DType::f16>());
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

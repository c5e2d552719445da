#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cast.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/cast.hpp"
#include "kernels/loop-inl.hpp"
#include "kernels/narrow-inl.hpp"
#include "kernels/scalar.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {

// A partial last vector goes through padded copies; its inputs are read before the store.
template <class Format>
void narrow_all(std::byte* out, const std::byte* in, std::size_t count) {
  using Bits = typename Format::Bits;
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    store_at(Codes<Format>(), narrow<Format>(load_at(Floats(), in, i)), out, i);
  }
  if (i == count) return;
  alignas(HWY_MAX_BYTES) std::byte wide[HWY_MAX_BYTES] = {};
  alignas(HWY_MAX_BYTES) std::byte codes[HWY_MAX_BYTES];
  std::memcpy(wide, in + i * sizeof(float), (count - i) * sizeof(float));
  store_at(Codes<Format>(), narrow<Format>(load_at(Floats(), wide, 0)), codes, 0);
  std::memcpy(out + i * sizeof(Bits), codes, (count - i) * sizeof(Bits));
}

template <class Format>
void widen_all(std::byte* out, const std::byte* in, std::size_t count) {
  using Bits = typename Format::Bits;
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    store_at(Floats(), widen<Format>(load_at(Codes<Format>(), in, i)), out, i);
  }
  if (i == count) return;
  alignas(HWY_MAX_BYTES) std::byte codes[HWY_MAX_BYTES] = {};
  alignas(HWY_MAX_BYTES) std::byte wide[HWY_MAX_BYTES];
  std::memcpy(codes, in + i * sizeof(Bits), (count - i) * sizeof(Bits));
  store_at(Floats(), widen<Format>(load_at(Codes<Format>(), codes, 0)), wide, 0);
  std::memcpy(out + i * sizeof(float), wide, (count - i) * sizeof(float));
}

void from_f32(std::byte* out, DType type, const std::byte* in, std::size_t count) {
#if HWY_TARGET == HWY_SCALAR
  scalar::cast(out, type, in, DType::f32, count);
#else
  switch (type) {
    case DType::f16:
      return narrow_all<Float16>(out, in, count);
    case DType::bf16:
      return narrow_all<Bfloat16>(out, in, count);
    case DType::f8e4m3:
      return narrow_all<Float8e4m3>(out, in, count);
    case DType::f8e5m2:
      return narrow_all<Float8e5m2>(out, in, count);
    default:
      return;
  }
#endif
}

void to_f32(std::byte* out, const std::byte* in, DType type, std::size_t count) {
#if HWY_TARGET == HWY_SCALAR
  scalar::cast(out, DType::f32, in, type, count);
#else
  switch (type) {
    case DType::f16:
      return widen_all<Float16>(out, in, count);
    case DType::bf16:
      return widen_all<Bfloat16>(out, in, count);
    case DType::f8e4m3:
      return widen_all<Float8e4m3>(out, in, count);
    case DType::f8e5m2:
      return widen_all<Float8e5m2>(out, in, count);
    default:
      return;
  }
#endif
}

}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(from_f32);
HWY_EXPORT(to_f32);

void cast(std::byte* out, DType out_type, const std::byte* in, DType in_type, std::size_t count) {
  const bool from_narrow = size_of(in_type) < size_of(DType::f32);
  const bool to_narrow = size_of(out_type) < size_of(DType::f32);
  if (from_narrow && out_type == DType::f32) {
    return HWY_DYNAMIC_DISPATCH(to_f32)(out, in, in_type, count);
  }
  if (to_narrow && in_type == DType::f32) {
    return HWY_DYNAMIC_DISPATCH(from_f32)(out, out_type, in, count);
  }
  // float64 is rounded once, so it must not pass through float32.
  if (!from_narrow || !to_narrow) return scalar::cast(out, out_type, in, in_type, count);

  constexpr std::size_t block = 1024;
  alignas(64) std::byte wide[block * sizeof(float)];
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    cast(wide, DType::f32, in + begin * size_of(in_type), in_type, length);
    cast(out + begin * size_of(out_type), out_type, wide, DType::f32, length);
  }
}

}  // namespace pith::kernels
#endif

// Conversion of the narrow float formats to and from float32 vectors; included once per target.
#if defined(PITH_KERNELS_NARROW_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef PITH_KERNELS_NARROW_INL
#undef PITH_KERNELS_NARROW_INL
#else
#define PITH_KERNELS_NARROW_INL
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<std::uint32_t>;
using Word = hn::Vec<Words>;
using Floats = hn::ScalableTag<float>;
using Float = hn::Vec<Floats>;

// Whether the CPU converts float16. Highway's own fallback truncates.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
inline constexpr bool native_f16 = true;
#else
inline constexpr bool native_f16 = false;
#endif

HWY_INLINE Word constant(std::uint32_t bits) { return hn::Set(Words(), bits); }
HWY_INLINE Float as_float(Word v) { return hn::BitCast(Floats(), v); }
HWY_INLINE Word as_word(Float v) { return hn::BitCast(Words(), v); }
HWY_INLINE Word select(hn::Mask<Words> mask, Word yes, Word no) {
  return hn::IfThenElse(mask, yes, no);
}

// Magnitudes have no sign bit, so signed comparison works; it takes one instruction on x86.
HWY_INLINE hn::Mask<Words> above(Word magnitude, std::uint32_t bound) {
  const hn::RebindToSigned<Words> d;
  const auto signed_bound = hn::BitCast(d, constant(bound));
  return hn::RebindMask(Words(), hn::Gt(hn::BitCast(d, magnitude), signed_bound));
}
HWY_INLINE hn::Mask<Words> below(Word magnitude, std::uint32_t bound) {
  const hn::RebindToSigned<Words> d;
  const auto signed_bound = hn::BitCast(d, constant(bound));
  return hn::RebindMask(Words(), hn::Lt(hn::BitCast(d, magnitude), signed_bound));
}

HWY_INLINE Float canonical_f32(Float v) {
  return hn::IfThenElse(hn::Eq(v, v), v, as_float(constant(nan_f32)));
}

// `code` is in the top bits of each word, over zeros. NaNs are decoded to NaNs, not to the
// canonical one.
template <class Format>
HWY_INLINE Float decode(Word code) {
  constexpr int width = 8 * sizeof(typename Format::Bits);
  constexpr std::uint32_t one_exponent = 1u << 23;
  constexpr std::uint32_t rebias = (127 - Format::bias) * one_exponent;
  const Word sign = hn::And(code, constant(0x80000000u));
  // Moves the exponent field to where float32 has it.
  constexpr int down = (32 - width) - (23 - Format::mantissa);
  const Word magnitude = hn::ShiftRight<down>(hn::Xor(code, sign));
  const Word normal = hn::Add(magnitude, constant(rebias));
  // With the exponent of the smallest normal, a subnormal gets a hidden bit that it must not have:
  // subtract it.
  const Float hidden = as_float(constant(rebias + one_exponent));
  const Word subnormal =
      as_word(hn::Sub(as_float(hn::Add(normal, constant(one_exponent))), hidden));
  const Word number = select(below(magnitude, one_exponent), subnormal, normal);
  // Above the largest number, the mantissa distinguishes infinity from NaN, as in float32.
  constexpr std::uint32_t largest = std::uint32_t{Format::largest} << (23 - Format::mantissa);
  const Word special = hn::Or(number, constant(0x7f800000u));
  return as_float(hn::Or(sign, select(above(magnitude, largest), special, number)));
}

// The code is returned in the low bits of each word. As in the scalar twin, the value is counted in
// units of the last place: adding `ruler`, a power of two whose last place is that unit, rounds to
// even.
template <class Format>
HWY_INLINE Word encode(Float value) {
  constexpr int width = 8 * sizeof(typename Format::Bits);
  constexpr int dropped = 23 - Format::mantissa;
  constexpr std::uint32_t lowest = (128u - Format::bias) << 23;
  constexpr std::uint32_t too_large = (129u + Format::bias) << 23;
  const Word bits = as_word(value);
  const Word magnitude = hn::And(bits, constant(0x7fffffffu));
  const Word sign = hn::ShiftRight<32 - width>(hn::Xor(bits, magnitude));

  const Word clamped = hn::Min(magnitude, constant(too_large));
  const Word exponent = hn::Max(hn::And(clamped, constant(0x7f800000u)), constant(lowest));
  const Word ruler = hn::Add(exponent, constant(dropped << 23));
  const Word units = hn::Sub(as_word(hn::Add(as_float(clamped), as_float(ruler))), ruler);
  const Word rounded = hn::Add(units, hn::ShiftRight<dropped>(hn::Sub(exponent, constant(lowest))));

  Word code = hn::Min(rounded, constant(Format::overflow));
  if constexpr (Format::infinity != Format::overflow) {
    code = select(hn::Eq(magnitude, constant(0x7f800000u)), constant(Format::infinity), code);
  }
  code = hn::Or(code, sign);
  return select(above(magnitude, 0x7f800000u), constant(Format::nan), code);
}

// Bfloat16 is the upper half of float32. The result is in the upper half of each word, over zeros.
HWY_INLINE Word encode_bf16_high(Float value) {
  const Word bits = as_word(value);
  const Word odd = hn::And(hn::ShiftRight<16>(bits), constant(1));
  const Word rounded = hn::Add(bits, hn::Add(odd, constant(0x7fff)));
  const Word number = hn::And(rounded, constant(0xffff0000u));
  const auto ordered = hn::RebindMask(Words(), hn::Eq(value, value));
  return select(ordered, number, constant(std::uint32_t{Bfloat16::nan} << 16));
}

template <class Format>
using Codes = hn::Rebind<typename Format::Bits, Words>;

// Convert between float32 and the codes of a narrow format, rounded once, with canonical NaNs.
template <class Format>
HWY_INLINE hn::Vec<Codes<Format>> narrow(Float value) {
  const Codes<Format> d;
  if constexpr (native_f16 && std::is_same_v<Format, Float16>) {
    const hn::Rebind<hwy::float16_t, Floats> packed;
    return hn::BitCast(d, hn::DemoteTo(packed, canonical_f32(value)));
  } else {
    Word code;
    if constexpr (std::is_same_v<Format, Bfloat16>) {
      code = hn::ShiftRight<16>(encode_bf16_high(value));
    } else {
      code = encode<Format>(value);
    }
    return hn::DemoteTo(d, hn::BitCast(hn::RebindToSigned<Words>(), code));
  }
}

template <class Format>
HWY_INLINE Float widen(hn::Vec<Codes<Format>> codes) {
  if constexpr (native_f16 && std::is_same_v<Format, Float16>) {
    const hn::Rebind<hwy::float16_t, Floats> packed;
    return canonical_f32(hn::PromoteTo(Floats(), hn::BitCast(packed, codes)));
  } else {
    constexpr int width = 8 * sizeof(typename Format::Bits);
    const Word top = hn::ShiftLeft<32 - width>(hn::PromoteTo(Words(), codes));
    if constexpr (std::is_same_v<Format, Bfloat16>) return canonical_f32(as_float(top));
    return canonical_f32(decode<Format>(top));
  }
}

}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_narrow_floats.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/loop-inl.hpp"
#include "kernels/narrow-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR  // lacks operations on halves; plain code is faster

void narrow_floats(const Combine& call) { combine_scalar(call); }

#else

struct Sum {
  HWY_INLINE Float operator()(Float a, Float b) const { return hn::Add(a, b); }
};
struct Product {
  HWY_INLINE Float operator()(Float a, Float b) const { return hn::Mul(a, b); }
};
// For operands that Float8ViaFloat16 reads as 2^-8 times their value.
struct ScaledProduct {
  HWY_INLINE Float operator()(Float a, Float b) const {
    return hn::Mul(hn::Mul(a, hn::Set(Floats(), 256.0f)), b);
  }
};
struct Quotient {
  float divisor;
  HWY_INLINE Float operator()(Float a, Float) const {
    return hn::Div(a, hn::Set(Floats(), divisor));
  }
};

// Decodes `width` bits of each 32-bit word at a time: shifts stay within a word, whereas unpacking
// to wider lanes would move data across the vector.
template <class Format, class Arithmetic>
struct Emulated {
  Arithmetic arithmetic;

  template <int kShift>
  HWY_INLINE Word part(Word a, Word b) const {
    constexpr int width = 8 * sizeof(typename Format::Bits);
    const Word top = constant(~0u << (32 - width));
    const Word code_a = hn::And(hn::ShiftLeft<32 - width - kShift>(a), top);
    const Word code_b = hn::And(hn::ShiftLeft<32 - width - kShift>(b), top);
    const Float result = arithmetic(decode<Format>(code_a), decode<Format>(code_b));
    return hn::ShiftLeft<kShift>(encode<Format>(result));
  }

  template <class D, class V>
  HWY_INLINE V operator()(D d, V narrow_a, V narrow_b) const {
    const Word a = hn::BitCast(Words(), narrow_a);
    const Word b = hn::BitCast(Words(), narrow_b);
    if constexpr (sizeof(typename Format::Bits) == 2) {
      return hn::BitCast(d, hn::Or(part<0>(a, b), part<16>(a, b)));
    } else {
      const Word low = hn::Or(part<0>(a, b), part<8>(a, b));
      return hn::BitCast(d, hn::Or(low, hn::Or(part<16>(a, b), part<24>(a, b))));
    }
  }
};

template <class Arithmetic>
struct Emulated<Bfloat16, Arithmetic> {
  Arithmetic arithmetic;

  template <class D, class V>
  HWY_INLINE V operator()(D d, V narrow_a, V narrow_b) const {
    const Word a = hn::BitCast(Words(), narrow_a);
    const Word b = hn::BitCast(Words(), narrow_b);
    const Word high = constant(0xffff0000u);
    const Float odd = arithmetic(as_float(hn::And(a, high)), as_float(hn::And(b, high)));
    const Float even = arithmetic(as_float(hn::ShiftLeft<16>(a)), as_float(hn::ShiftLeft<16>(b)));
    return hn::BitCast(d,
                       hn::Or(encode_bf16_high(odd), hn::ShiftRight<16>(encode_bf16_high(even))));
  }
};

template <class Arithmetic>
struct NativeFloat16 {
  Arithmetic arithmetic;

  template <class H>
  HWY_INLINE hn::Vec<H> half(H h, hn::Vec<H> a, hn::Vec<H> b) const {
    const hn::Rebind<hwy::float16_t, Floats> packed;
    const Float wide_a = hn::PromoteTo(Floats(), hn::BitCast(packed, a));
    const Float wide_b = hn::PromoteTo(Floats(), hn::BitCast(packed, b));
    const Float result = canonical_f32(arithmetic(wide_a, wide_b));
    return hn::BitCast(h, hn::DemoteTo(packed, result));
  }

  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const hn::Half<D> h;
    const auto low = half(h, hn::LowerHalf(h, a), hn::LowerHalf(h, b));
    const auto high = half(h, hn::UpperHalf(h, a), hn::UpperHalf(h, b));
    return hn::Combine(d, high, low);
  }
};

// Up to twice as fast as Emulated, as most of the work is on 16-bit lanes. Each result is rounded
// to float16 and then to 8 bits; for sums and products of 8-bit floats that equals rounding once,
// which the tests check for all pairs. E4M3 codes are read as float16 with a short mantissa, 2^-8
// times their value, so that subnormals of one format are subnormals of the other.
template <class Format, class Arithmetic>
struct Float8ViaFloat16 {
  Arithmetic arithmetic;
  static constexpr bool has_infinity = Format::infinity != Format::largest;

  template <class D16, class V>
  static HWY_INLINE V widen(D16 d, V code) {
    if constexpr (Format::mantissa == 2) return code;
    const V sign = hn::And(code, hn::Set(d, std::uint16_t{0x8000}));
    return hn::Or(sign, hn::ShiftRight<1>(hn::Xor(code, sign)));
  }

  // Codes are in the high bytes of 16-bit lanes, over zeros.
  template <class D16, class V>
  HWY_INLINE V high_bytes(D16 d, V a, V b) const {
    constexpr int dropped = 10 - Format::mantissa;
    constexpr std::uint16_t below_half = (1 << (dropped - 1)) - 1;
    const V result = NativeFloat16<Arithmetic>{arithmetic}(d, widen(d, a), widen(d, b));
    const V sign = hn::And(result, hn::Set(d, std::uint16_t{0x8000}));
    const V magnitude = hn::Xor(result, sign);
    const V odd = hn::And(hn::ShiftRight<dropped>(magnitude), hn::Set(d, std::uint16_t{1}));
    const V rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(d, below_half)));
    // The canonical NaN of float16 would round up past E5M2's NaN, its last code.
    constexpr std::uint16_t last = has_infinity ? Format::nan : Format::largest;
    const V code = hn::Min(hn::ShiftRight<dropped>(rounded), hn::Set(d, last));
    return hn::Or(sign, hn::ShiftLeft<8>(code));
  }

  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const hn::Repartition<std::uint16_t, D> d16;
    const auto pairs_a = hn::BitCast(d16, a);
    const auto pairs_b = hn::BitCast(d16, b);
    const auto high = hn::Set(d16, std::uint16_t{0xff00});
    const auto odd = high_bytes(d16, hn::And(pairs_a, high), hn::And(pairs_b, high));
    const auto even = high_bytes(d16, hn::ShiftLeft<8>(pairs_a), hn::ShiftLeft<8>(pairs_b));
    const V code = hn::BitCast(d, hn::Or(odd, hn::ShiftRight<8>(even)));

    const V all_but_sign = hn::Set(d, std::uint8_t{0x7f});
    const V larger = hn::Max(hn::And(a, all_but_sign), hn::And(b, all_but_sign));
    const V infinity = hn::Set(d, Format::infinity);
    if constexpr (has_infinity) {
      // An infinity without an infinite operand is an overflow; the code one below is the largest
      // number.
      const auto infinite = hn::Eq(hn::And(code, all_but_sign), infinity);
      const auto overflow = hn::AndNot(hn::Eq(larger, infinity), infinite);
      return hn::Add(code, hn::VecFromMask(d, overflow));
    } else {
      return hn::IfThenElse(hn::Eq(larger, all_but_sign), all_but_sign, code);
    }
  }
};

// Orders without decoding: flipping the magnitude bits of negative codes makes signed integers that
// sort as the values do, -0 below +0.
template <class Format, bool kMaximum>
struct Extremum {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    using T = hn::TFromD<D>;
    const V magnitude = hn::Set(d, std::numeric_limits<T>::max());
    const V key_a = hn::Xor(a, hn::And(hn::BroadcastSignBit(a), magnitude));
    const V key_b = hn::Xor(b, hn::And(hn::BroadcastSignBit(b), magnitude));
    const V key = kMaximum ? hn::Max(key_a, key_b) : hn::Min(key_a, key_b);
    const V code = hn::Xor(key, hn::And(hn::BroadcastSignBit(key), magnitude));
    const V larger = hn::Max(hn::And(a, magnitude), hn::And(b, magnitude));
    const auto is_nan = hn::Gt(larger, hn::Set(d, static_cast<T>(Format::infinity)));
    return hn::IfThenElse(is_nan, hn::Set(d, static_cast<T>(Format::nan)), code);
  }
};

template <class Format, class Arithmetic>
void combine_with(const Arithmetic& arithmetic, const Combine& call) {
  using Bits = typename Format::Bits;
  if constexpr (native_f16 && std::is_same_v<Format, Float16>) {
    return run<Bits, false>(NativeFloat16<Arithmetic>{arithmetic}, call);
  }
  constexpr bool divides = std::is_same_v<Arithmetic, Quotient>;
  if constexpr (native_f16 && sizeof(Bits) == 1 && !divides) {
    constexpr bool scaled = std::is_same_v<Format, Float8e4m3>;
    constexpr bool scaled_product = scaled && std::is_same_v<Arithmetic, Product>;
    using Used = std::conditional_t<scaled_product, ScaledProduct, Arithmetic>;
    return run<Bits, false>(Float8ViaFloat16<Format, Used>{}, call);
  }
  run<Bits, false>(Emulated<Format, Arithmetic>{arithmetic}, call);
}

template <class Format>
void combine_as(const Combine& call) {
  using Signed = std::make_signed_t<typename Format::Bits>;
  if (call.divisor != 0) return combine_with<Format>(Quotient{call.divisor}, call);
  switch (call.op) {
    case Op::sum:
    case Op::avg:
      return combine_with<Format>(Sum{}, call);
    case Op::prod:
      return combine_with<Format>(Product{}, call);
    case Op::max:
      return run<Signed>(Extremum<Format, true>{}, call);
    case Op::min:
      return run<Signed>(Extremum<Format, false>{}, call);
    default:
      return;  // defined for integers only
  }
}

void narrow_floats(const Combine& call) {
  switch (call.type) {
    case DType::f16:
      return combine_as<Float16>(call);
    case DType::bf16:
      return combine_as<Bfloat16>(call);
    case DType::f8e4m3:
      return combine_as<Float8e4m3>(call);
    case DType::f8e5m2:
      return combine_as<Float8e5m2>(call);
    default:
      return;
  }
}

#endif

}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(narrow_floats);
void combine_narrow_floats(const Combine& call) { HWY_DYNAMIC_DISPATCH(narrow_floats)(call); }

}  // namespace pith::kernels
#endif

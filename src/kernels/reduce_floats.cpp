#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_floats.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/formats.hpp"
#include "kernels/loop-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {

template <class D>
HWY_INLINE hn::Vec<D> canonical_nan(D d) {
  const hn::RebindToUnsigned<D> bits;
  if constexpr (sizeof(hn::TFromD<D>) == 4)
    return hn::BitCast(d, hn::Set(bits, nan_f32));
  else
    return hn::BitCast(d, hn::Set(bits, nan_f64));
}

template <class D, class V>
HWY_INLINE V canonical_vector(D d, V v) {
  return hn::IfThenElse(hn::Eq(v, v), v, canonical_nan(d));
}

struct FloatSum {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return canonical_vector(d, hn::Add(a, b));
  }
};

struct FloatProduct {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return canonical_vector(d, hn::Mul(a, b));
  }
};

#if HWY_TARGET != HWY_SCALAR  // whose vectors have one lane
// Of complex numbers, whose parts are neighbouring lanes.
struct ComplexProduct {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const V by_real = hn::Mul(hn::DupEven(a), b);
    const V by_imaginary = hn::Mul(hn::DupOdd(a), hn::Reverse2(d, b));
    // The square of i makes the real part a difference.
    const V signs = hn::OddEven(hn::Zero(d), hn::SignBit(d));
    return canonical_vector(d, hn::Add(by_real, hn::Xor(by_imaginary, signs)));
  }
};
#endif

struct FloatQuotient {
  float divisor;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V) const {
    return canonical_vector(d, hn::Div(a, hn::Set(d, static_cast<hn::TFromD<D>>(divisor))));
  }
};

// Equal numbers differ at most in the sign of zero, where And yields +0 and Or yields -0.
struct FloatMaximum {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const auto ordered = hn::And(hn::Eq(a, a), hn::Eq(b, b));
    const auto larger = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), hn::Max(a, b));
    return hn::IfThenElse(ordered, larger, canonical_nan(d));
  }
};

struct FloatMinimum {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const auto ordered = hn::And(hn::Eq(a, a), hn::Eq(b, b));
    const auto smaller = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), hn::Min(a, b));
    return hn::IfThenElse(ordered, smaller, canonical_nan(d));
  }
};

template <class T>
void combine_as(const Combine& call) {
  if (call.divisor != 0) return run<T>(FloatQuotient{call.divisor}, call);
  switch (call.op) {
    case Op::sum:
    case Op::avg:
      return run<T>(FloatSum{}, call);
    case Op::prod:
      return run<T>(FloatProduct{}, call);
    case Op::max:
      return run<T>(FloatMaximum{}, call);
    case Op::min:
      return run<T>(FloatMinimum{}, call);
    default:
      return;  // defined for integers only
  }
}

void floats(const Combine& call) {
#if HWY_TARGET == HWY_SCALAR
  combine_scalar(call);
#else
  call.type == DType::f32 ? combine_as<float>(call) : combine_as<double>(call);
#endif
}

void complex_product(const Combine& call) {
#if HWY_TARGET == HWY_SCALAR
  combine_scalar(call);
#else
  Combine parts = call;
  parts.count *= 2;
  parts.stores = Stores::cached;  // streamed vectors could begin with an imaginary part
  call.type == DType::c64 ? run<float>(ComplexProduct(), parts)
                          : run<double>(ComplexProduct(), parts);
#endif
}

}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(floats);
void combine_floats(const Combine& call) { HWY_DYNAMIC_DISPATCH(floats)(call); }

HWY_EXPORT(complex_product);
void multiply_complex(const Combine& call) { HWY_DYNAMIC_DISPATCH(complex_product)(call); }

}  // namespace pith::kernels
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_integers.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/loop-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {

struct WrappingSum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

struct WrappingProduct {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    if constexpr (sizeof(hn::TFromD<D>) > 1) {
      return hn::Mul(a, b);
    } else {
      // No CPU multiplies 8-bit lanes: even ones are multiplied in 16 bits, odd ones shifted down
      // first.
      const hn::Repartition<std::uint16_t, D> wide;
      const auto wide_a = hn::BitCast(wide, a);
      const auto wide_b = hn::BitCast(wide, b);
      const auto even = hn::And(hn::Mul(wide_a, wide_b), hn::Set(wide, 0xff));
      const auto odd = hn::Mul(hn::ShiftRight<8>(wide_a), hn::ShiftRight<8>(wide_b));
      return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
    }
  }
};

struct Maximum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Max(a, b);
  }
};

struct Minimum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Min(a, b);
  }
};

struct BitAnd {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Xor(a, b);
  }
};

// 1 in lanes that are not 0, else 0.
template <class D, class V>
HWY_INLINE V truth(D d, V v) {
  return hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), hn::Set(d, hn::TFromD<D>{1}));
}

// Combines truth values as `Bits` combines bits.
template <class Bits>
struct Logical {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return Bits()(d, truth(d, a), truth(d, b));
  }
};

// Sums and products wrap, so signed and unsigned share one loop; as do bits and truth values.
template <class T>
void combine_as(const Combine& call) {
  using Unsigned = std::make_unsigned_t<T>;
  switch (call.op) {
    case Op::sum:
    case Op::avg:
      return run<Unsigned>(WrappingSum{}, call);
    case Op::prod:
      return run<Unsigned>(WrappingProduct{}, call);
    case Op::max:
      return run<T>(Maximum{}, call);
    case Op::min:
      return run<T>(Minimum{}, call);
    case Op::band:
      return run<Unsigned>(BitAnd{}, call);
    case Op::bor:
      return run<Unsigned>(BitOr{}, call);
    case Op::bxor:
      return run<Unsigned>(BitXor{}, call);
    case Op::land:
      return run<Unsigned>(Logical<BitAnd>{}, call);
    case Op::lor:
      return run<Unsigned>(Logical<BitOr>{}, call);
    case Op::lxor:
      return run<Unsigned>(Logical<BitXor>{}, call);
  }
}

void integers(const Combine& call) {
#if HWY_TARGET == HWY_SCALAR
  combine_scalar(call);
#else
  switch (call.type) {
    case DType::i8:
      return combine_as<std::int8_t>(call);
    case DType::u8:
      return combine_as<std::uint8_t>(call);
    case DType::i32:
      return combine_as<std::int32_t>(call);
    case DType::u32:
      return combine_as<std::uint32_t>(call);
    case DType::i64:
      return combine_as<std::int64_t>(call);
    case DType::u64:
      return combine_as<std::uint64_t>(call);
    default:
      return;
  }
#endif
}

}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(integers);
void combine_integers(const Combine& call) { HWY_DYNAMIC_DISPATCH(integers)(call); }

}  // namespace pith::kernels
#endif

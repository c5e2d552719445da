// Momentum: one pass over velocity and gradient, bound by memory.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elections/momentum.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/elections/elections.hpp"
#include "kernels/sparse.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void momentum_of(const MomentumKernel::Args& args) { scalar::correct_momentum(args); }

#else

HWY_INLINE Float finite_or_zero(Float v) {
  const Integer infinity = hn::Set(Integers(), 0x7f800000);
  const auto is_finite = hn::RebindMask(Floats(), hn::Lt(magnitude(v), infinity));
  return hn::IfThenElseZero(is_finite, v);
}

// A null gradient is zeros: times the factor they are added, too, so that zeros have one sign.
template <DType kType, bool kGiven>
void run_momentum(const MomentumKernel::Args& args) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const Float momentum = hn::Set(d, args.momentum);
  const Float factor = hn::Set(d, args.factor);
  std::size_t i = 0;
  for (; i + lanes <= args.count; i += lanes) {
    const Float old = finite_or_zero(hn::LoadU(d, args.velocity + i));
    Float given = hn::Zero(d);
    if constexpr (kGiven) given = load_values<kType>(args.gradient, i);
    hn::StoreU(hn::Add(hn::Mul(momentum, old), hn::Mul(factor, given)), d, args.velocity + i);
  }
  const std::byte* const left = kGiven ? args.gradient + i * size_of(kType) : nullptr;
  scalar::correct_momentum(
      {args.velocity + i, left, kType, args.count - i, args.momentum, args.factor});
}

void momentum_of(const MomentumKernel::Args& args) {
  if (!args.gradient) return run_momentum<DType::f32, false>(args);
  with_type(args.type, [&](auto type) { run_momentum<type.value, true>(args); });
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(momentum_of);

void correct_momentum(const MomentumKernel::Args& args) { HWY_DYNAMIC_DISPATCH(momentum_of)(args); }

}  // namespace pith::kernels
#endif

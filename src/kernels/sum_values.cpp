// The sum of n value lists with the same indices, rounded once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sum_values.cpp"
#include <cmath>

#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void sum_values_of(const SumValuesKernel::Args& args) { scalar::sum_values(args); }

#else

constexpr std::size_t summed_block = 256;

// sums[0, n) = the sums of the values from `begin` on. Two vectors at a time hide the latency of
// the dependent additions.
template <DType kType>
HWY_INLINE void sum_block(const SumValuesKernel::Args& args, std::size_t begin, std::size_t n,
                          float* sums) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    Float sum0 = load_values<kType>(args.in[0], begin + i);
    Float sum1 = load_values<kType>(args.in[0], begin + i + lanes);
    for (std::size_t k = 1; k < args.n; ++k) {
      sum0 = hn::Add(sum0, load_values<kType>(args.in[k], begin + i));
      sum1 = hn::Add(sum1, load_values<kType>(args.in[k], begin + i + lanes));
    }
    hn::StoreU(sum0, d, sums + i);
    hn::StoreU(sum1, d, sums + i + lanes);
  }
  if (i == n) return;
  HWY_ALIGN float rest[2 * hn::MaxLanes(d)];
  widen_block<kType>(sums + i, args.in[0], begin + i, n - i);
  for (std::size_t k = 1; k < args.n; ++k) {
    widen_block<kType>(rest, args.in[k], begin + i, n - i);
    for (std::size_t j = i; j < n; ++j) sums[j] += rest[j - i];
  }
}

template <DType kType>
void sum_as(const SumValuesKernel::Args& args) {
  constexpr std::size_t ahead = 24;
  HWY_ALIGN float sums[summed_block];
  HWY_ALIGN float rounded[summed_block];
  for (std::size_t begin = 0; begin < args.count; begin += summed_block) {
    const std::size_t n = std::min(summed_block, args.count - begin);
    sum_block<kType>(args, begin, n, sums);
    narrow_block<kType, true>(args.out, begin, sums, n);
    if (args.accumulator == nullptr || kType == DType::f32) continue;
    widen_block<kType>(rounded, args.out, begin, n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at = begin + i;
      if (at + ahead < args.count) hwy::Prefetch(args.accumulator + args.indices[at + ahead]);
      const float lost = sums[i] - rounded[i];
      if (std::isfinite(lost)) args.accumulator[args.indices[at]] += lost;
    }
  }
}

void sum_values_of(const SumValuesKernel::Args& args) {
  with_type(args.type, [&](auto type) { sum_as<type.value>(args); });
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(sum_values_of);

void sum_values(const SumValuesKernel::Args& args) { HWY_DYNAMIC_DISPATCH(sum_values_of)(args); }

}  // namespace pith::kernels
#endif

// Take, round and give back: values at ascending indices of an accumulator larger than the caches.
// A block's elements are gathered with prefetches, converted as vectors, and the remainders are
// scattered back while their lines are in the cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/take.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void take_all(const TakeKernel::Args& args) { scalar::take(args); }
void round_all(const RoundKernel::Args& args) { scalar::round_values(args); }
void give_back_all(const ReturnKernel::Args& args) { scalar::give_back(args); }

#else

constexpr std::size_t block = 256;
constexpr std::size_t ahead = 24;  // prefetch distance in elements

// Prefetches the element that is accessed `ahead` elements later.
HWY_INLINE void prefetch_ahead(const float* accumulator, const std::uint32_t* indices,
                               std::size_t i, std::size_t count) {
  if (i + ahead < count) hwy::Prefetch(accumulator + indices[i + ahead]);
}

template <DType kType>
void take_as(const TakeKernel::Args& args) {
  HWY_ALIGN float taken[block];
  HWY_ALIGN float rounded[block];
  const std::size_t lanes = hn::Lanes(Floats());
  Double squares0 = hn::Zero(Doubles()), squares1 = squares0;
  for (std::size_t begin = 0; begin < args.count; begin += block) {
    const std::size_t n = std::min(block, args.count - begin);
    const std::uint32_t* indices = args.indices + begin;
    for (std::size_t i = 0; i < n; ++i) {
      prefetch_ahead(args.accumulator, args.indices, begin + i, args.count);
      taken[i] = args.accumulator[indices[i]];
    }
    narrow_block<kType, true>(args.values, begin, taken, n);
    widen_block<kType>(rounded, args.values, begin, n);
    for (std::size_t i = 0; i < n; ++i) args.accumulator[indices[i]] = taken[i] - rounded[i];
    for (std::size_t i = n; i % lanes != 0; ++i) rounded[i] = 0;
    for (std::size_t i = 0; i < n; i += lanes) {
      add_squares(hn::LoadU(Floats(), rounded + i), squares0, squares1);
    }
  }
  *args.squares = total(squares0, squares1);
}

template <DType kType>
void round_as(const RoundKernel::Args& args) {
  // Nothing is lost to rounding, so the accumulator is not touched.
  if constexpr (kType == DType::f32) {
    if (args.count > 0) std::memmove(args.out, args.in, args.count * sizeof(float));
    return;
  }
  HWY_ALIGN float rounded[block];
  for (std::size_t begin = 0; begin < args.count; begin += block) {
    const std::size_t n = std::min(block, args.count - begin);
    const std::uint32_t* indices = args.indices + begin;
    const float* in = args.in + begin;
    narrow_block<kType, true>(args.out, begin, in, n);
    widen_block<kType>(rounded, args.out, begin, n);
    for (std::size_t i = 0; i < n; ++i) {
      prefetch_ahead(args.accumulator, args.indices, begin + i, args.count);
      args.accumulator[indices[i]] += in[i] - rounded[i];
    }
  }
}

template <DType kType>
void give_back_as(const ReturnKernel::Args& args) {
  HWY_ALIGN float values[block];
  for (std::size_t begin = 0; begin < args.count; begin += block) {
    const std::size_t n = std::min(block, args.count - begin);
    const std::uint32_t* indices = args.indices + begin;
    widen_block<kType>(values, args.values, begin, n);
    for (std::size_t i = 0; i < n; ++i) {
      prefetch_ahead(args.accumulator, args.indices, begin + i, args.count);
      args.accumulator[indices[i]] += values[i];
    }
  }
}

void take_all(const TakeKernel::Args& args) {
  with_type(args.type, [&](auto type) { take_as<type.value>(args); });
}
void round_all(const RoundKernel::Args& args) {
  with_type(args.type, [&](auto type) { round_as<type.value>(args); });
}
void give_back_all(const ReturnKernel::Args& args) {
  with_type(args.type, [&](auto type) { give_back_as<type.value>(args); });
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(take_all);
HWY_EXPORT(round_all);
HWY_EXPORT(give_back_all);

void take(const TakeKernel::Args& args) { HWY_DYNAMIC_DISPATCH(take_all)(args); }
void round_values(const RoundKernel::Args& args) { HWY_DYNAMIC_DISPATCH(round_all)(args); }
void give_back(const ReturnKernel::Args& args) { HWY_DYNAMIC_DISPATCH(give_back_all)(args); }

}  // namespace pith::kernels
#endif

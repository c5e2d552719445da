// The sum of squares of values, in float64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/squares.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void squares_of(const SquaresKernel::Args& args) { scalar::squares(args); }

#else

// Two vectors at a time hide the latency of the additions.
template <DType kType>
double sum_squares(const std::byte* values, std::size_t count) {
  const std::size_t lanes = hn::Lanes(Floats());
  Double sum0 = hn::Zero(Doubles()), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  std::size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    add_squares(load_values<kType>(values, i), sum0, sum1);
    add_squares(load_values<kType>(values, i + lanes), sum2, sum3);
  }
  double rest = 0;
  const std::byte* const tail = values + i * size_of(kType);
  if (i < count) scalar::squares({tail, count - i, kType, &rest});
  return rest + total(hn::Add(sum0, sum2), hn::Add(sum1, sum3));
}

void squares_of(const SquaresKernel::Args& args) {
  with_type(args.type,
            [&](auto type) { *args.squares = sum_squares<type.value>(args.values, args.count); });
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(squares_of);

void squares(const SquaresKernel::Args& args) { HWY_DYNAMIC_DISPATCH(squares_of)(args); }

}  // namespace pith::kernels
#endif

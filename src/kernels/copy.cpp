#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "core/copy.hpp"
#include "hwy/highway.h"
#include "kernels/loop-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {

struct First {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V) const {
    return a;
  }
};

void streaming_copy(const Combine& call) { run<std::uint8_t>(First{}, call); }

}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(streaming_copy);
void copy(std::byte* out, const std::byte* in, std::size_t bytes, Stores stores) {
  if (bytes == 0 || out == in) return;
  if (stores == Stores::cached) {
    copy_bytes(out, in, bytes);
    return;
  }
  HWY_DYNAMIC_DISPATCH(streaming_copy)
  (Combine{out, nullptr, in, in, bytes, DType::u8, Op::sum, stores});
}

}  // namespace pith::kernels
#endif

#include <cfenv>

#include "catch.hpp"
#include "core/float_mode.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

// Not folded by the compiler.
float just_above_one() {
  volatile float one = 1;
  volatile float small = 1e-10f;
  return one + small;
}

}  // namespace

TEST_CASE("arithmetic rounds to nearest whatever the caller's thread does") {
  const float nearest = just_above_one();
  std::fesetround(FE_UPWARD);
  const float up = just_above_one();
  float inside = 0;
  {
    const pith::FloatMode mode;
    inside = just_above_one();
  }
  const float after = just_above_one();
  std::fesetround(FE_TONEAREST);
  CHECK(up != nearest);
  CHECK(inside == nearest);
  CHECK(after == up);
}

#if defined(__x86_64__)
TEST_CASE("subnormal numbers are kept whatever the caller's thread does") {
  constexpr unsigned flush = 0x8040;  // of results and of operands
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | flush);
  volatile float small = 1e-40f;
  const float outside = small + small;
  float inside = 0;
  {
    const pith::FloatMode mode;
    inside = small + small;
  }
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(outside == 0);
  CHECK(inside > 0);
  CHECK((after & flush) == flush);
}
#endif

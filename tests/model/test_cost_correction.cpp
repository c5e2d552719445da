// By what predictions are multiplied, and for which sizes.
#include "model/cost_correction.hpp"

#include <cmath>
#include <limits>

#include "tests/catch.hpp"
#include "tests/model/noise.hpp"

namespace pith::test {

namespace {

constexpr std::size_t kib = 1024;

// Calls that take `ratio` times as long as predicted.
void call(CostCorrection& correction, std::size_t bytes, double ratio, int count) {
  Noise noise(7, 0.1, 0.05);
  for (int i = 0; i < count; ++i) correction.add(1, bytes, noise.of(ratio * 1e-3), 1e-3);
}

}  // namespace

TEST_CASE("without samples nothing is corrected", "[correction]") {
  const CostCorrection correction(3);
  CHECK(correction.factor(2, 64 * kib).value == 1);
  CHECK(correction.factor(2, 64 * kib).log_sd == Approx(0.5));
  CHECK(correction.factor(0, 0).value == 1);
  CHECK(correction.factor(0, std::numeric_limits<std::size_t>::max()).value == 1);
}

TEST_CASE("a factor is learnt under noise and late calls", "[correction]") {
  const double ratio = GENERATE(0.4, 1.0, 2.5);
  CostCorrection correction(3);
  call(correction, 64 * kib, ratio, 200);
  CHECK(correction.factor(1, 64 * kib).value == Approx(ratio).epsilon(0.05));
  CHECK(correction.factor(1, 64 * kib).log_sd < 0.03);
  CHECK(correction.factor(0, 64 * kib).value == 1);
  CHECK(correction.factor(2, 64 * kib).value == 1);
}

TEST_CASE("few calls change little", "[correction]") {
  CostCorrection correction(3);
  double before = 1;
  for (int i = 0; i < 8; ++i) {
    correction.add(1, 64 * kib, 2e-3, 1e-3);
    const Estimated now = correction.factor(1, 64 * kib);
    CHECK(now.value < 2);
    if (i == 0) CHECK(now.value < 1.9);
    CHECK(now.value > before);
    before = now.value;
  }
  CHECK(before > 1.9);
  // One call of a hundred times its time does not count a hundred times.
  CostCorrection other(3);
  other.add(1, 64 * kib, 1, 0.01);
  CHECK(other.factor(1, 64 * kib).value < 2.5);
}

TEST_CASE("sizes beside it share what is learnt", "[correction]") {
  CostCorrection correction(3);
  call(correction, 64 * kib, 2, 200);
  const double here = correction.factor(1, 64 * kib).value;
  const double near = correction.factor(1, 256 * kib).value;
  const double next = correction.factor(1, kib * kib).value;
  CHECK(near > 1.7);
  CHECK(near < here);
  CHECK(next < near);
  CHECK(correction.factor(1, 16 * kib).value == near);
  CHECK(correction.factor(1, 16 * kib).log_sd > correction.factor(1, 64 * kib).log_sd);
  CHECK(correction.factor(1, 64 * kib * kib).value == 1);
  // Once a size has its own, its neighbours do not matter.
  call(correction, 256 * kib, 1, 200);
  CHECK(correction.factor(1, 256 * kib).value == Approx(1).epsilon(0.05));
  CHECK(correction.factor(1, 64 * kib).value == Approx(2).epsilon(0.05));
}

TEST_CASE("what has changed is forgotten", "[correction]") {
  CostCorrection correction(3);
  call(correction, 64 * kib, 2, 1000);
  call(correction, 64 * kib, 0.5, 1000);
  CHECK(correction.factor(1, 64 * kib).value == Approx(0.5).epsilon(0.05));
}

TEST_CASE("times that tell nothing are ignored", "[correction]") {
  CostCorrection correction(3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double seconds : {0.0, -1.0, nan}) {
    correction.add(1, 8, seconds, 1e-3);
    correction.add(1, 8, 1e-3, seconds);
  }
  CHECK(correction.factor(1, 8).value == 1);
}

}  // namespace pith::test

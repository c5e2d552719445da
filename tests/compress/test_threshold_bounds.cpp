// Bounds of the k-th magnitude from a forecast and a sample.
#include "compress/threshold_bounds.hpp"

#include <cmath>
#include <random>
#include <vector>

#include "tests/catch.hpp"

namespace pith::test {

namespace {

constexpr std::size_t count = std::size_t{1} << 20;

// Of a vector of normal numbers: those at equal distances.
struct Drawn {
  std::vector<float> magnitudes;
  float kth;  // exact
  double expected;

  Drawn(unsigned seed, double density) : magnitudes(count) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& m : magnitudes) m = std::fabs(normal(random));
    const auto k = static_cast<std::ptrdiff_t>(density * double(count));
    std::vector<float> sample;
    const std::size_t sampled = sample_elements(count);
    for (std::size_t i = 0; i < sampled; ++i) sample.push_back(magnitudes[i * (count / sampled)]);
    std::nth_element(magnitudes.begin(), magnitudes.begin() + k - 1, magnitudes.end(),
                     std::greater<>());
    kth = magnitudes[static_cast<std::size_t>(k) - 1];
    magnitudes = sample;
    expected = density * double(sampled);
  }
  ThresholdBounds narrowed(ThresholdBounds forecast) {
    return narrow(magnitudes, expected, forecast);
  }
};

bool holds(const ThresholdBounds& bounds, float kth) {
  return bounds.low > 0 && bounds.low <= kth && kth < bounds.high;
}

}  // namespace

TEST_CASE("a sample alone bounds the k-th magnitude", "[bounds]") {
  for (const double density : {0.01, 0.1, 0.5}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      Drawn drawn(seed, density);
      CHECK(holds(drawn.narrowed({}), drawn.kth));
    }
  }
}

TEST_CASE("a good forecast is kept where it is the narrower one", "[bounds]") {
  Drawn drawn(1, 0.1);
  const ThresholdBounds bounds = drawn.narrowed({drawn.kth * 0.99f, drawn.kth * 1.01f});
  CHECK(bounds.low == drawn.kth * 0.99f);
  CHECK(bounds.high == drawn.kth * 1.01f);
}

TEST_CASE("a wide forecast is narrowed by the sample", "[bounds]") {
  Drawn drawn(2, 0.1);
  const ThresholdBounds bounds = drawn.narrowed({drawn.kth * 0.3f, drawn.kth * 3});
  CHECK(holds(bounds, drawn.kth));
  CHECK(bounds.low > drawn.kth * 0.6f);
  CHECK(bounds.high < drawn.kth * 1.7f);
}

TEST_CASE("a forecast that the sample contradicts is dropped", "[bounds]") {
  for (const float miss : {0.2f, 5.0f}) {
    Drawn drawn(3, 0.1);
    const float wrong = drawn.kth * miss;
    CHECK(holds(drawn.narrowed({wrong * 0.99f, wrong * 1.01f}), drawn.kth));
  }
}

TEST_CASE("too small a sample makes nothing certain", "[bounds]") {
  Drawn drawn(4, 0.0005);
  const ThresholdBounds bounds = drawn.narrowed({});
  CHECK(bounds.low <= drawn.kth);
  CHECK(std::isinf(bounds.high));
}

TEST_CASE("a vector of zeros has no bounds", "[bounds]") {
  std::vector<float> zeros(2048);
  CHECK(narrow(zeros, 20, {}).low == 0);
  CHECK(narrow(zeros, 20, {1, 2}).low == 0);
}

TEST_CASE("short vectors are not sampled", "[bounds]") {
  CHECK(sample_elements(1000) == 0);
  CHECK(sample_elements(std::size_t{1} << 30) == std::size_t{1} << 15);
}

}  // namespace pith::test

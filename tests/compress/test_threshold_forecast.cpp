// Forecasts of the k-th magnitude.
#include "compress/threshold_forecast.hpp"

#include <cmath>
#include <cstring>

#include "tests/catch.hpp"

namespace pith::test {

namespace {

bool hit(const ThresholdForecast& forecast, float threshold) {
  return forecast.known() && forecast.low() <= threshold && threshold <= forecast.high();
}

}  // namespace

TEST_CASE("a forecast is known from the first threshold on") {
  ThresholdForecast forecast;
  CHECK_FALSE(forecast.known());
  forecast.saw(2);
  CHECK(hit(forecast, 2));
  forecast.saw(0);
  CHECK_FALSE(forecast.known());
  forecast.saw(NAN);
  CHECK_FALSE(forecast.known());
}

TEST_CASE("forecasts hit what is steady or drifts, and narrow down") {
  for (const float drift : {1.0f, 0.97f, 1.02f}) {
    ThresholdForecast forecast;
    float threshold = 3;
    int missed = 0;
    for (int step = 0; step < 60; ++step) {
      if (step >= 20 && !hit(forecast, threshold)) ++missed;
      forecast.saw(threshold);
      // Noise of one percent around the drift.
      threshold *= drift * (1 + 0.01f * std::sin(static_cast<float>(step * step)));
    }
    INFO("drift " << drift);
    CHECK(missed <= 1);
    CHECK(forecast.high() / forecast.low() < 1.15f);
  }
}

TEST_CASE("a jump widens the margin, and is followed") {
  ThresholdForecast forecast;
  for (int step = 0; step < 40; ++step) forecast.saw(1);
  const float narrow = forecast.high() / forecast.low();
  forecast.saw(5);
  CHECK(forecast.high() / forecast.low() > 1.5f * narrow);
  for (int step = 0; step < 30; ++step) forecast.saw(5);
  CHECK(hit(forecast, 5));
}

TEST_CASE("a forecast follows the scale, and its state comes back") {
  ThresholdForecast forecast;
  for (int step = 0; step < 9; ++step) forecast.saw(1 + 0.1f * static_cast<float>(step));
  const float low = forecast.low();
  ThresholdForecast other;
  other.restore(forecast.state());
  CHECK(other.low() == low);
  CHECK(other.high() == forecast.high());
  forecast.scale(-0.5f);
  CHECK(std::fabs(forecast.low() - low / 2) < 1e-6f);
}

}  // namespace pith::test

// Forecasts the k-th magnitude of the next step from earlier ones, which makes exact selection in
// one pass possible. It follows a steady drift; its margin follows its own errors.
#pragma once

#include <algorithm>
#include <cmath>

namespace pith {

class ThresholdForecast {
 public:
  // False before the first threshold, and after a threshold of zero.
  bool known() const { return last_ > 0; }
  // Bounds that almost surely contain the k-th magnitude. Precondition: known().
  float low() const { return expected() * std::exp(-margin()); }
  float high() const { return expected() * std::exp(margin()); }

  // Records the k-th magnitude of this step.
  void saw(float threshold) {
    if (!(threshold > 0)) {
      *this = {};
      return;
    }
    if (known()) {
      constexpr float most = 10;
      const float change = std::clamp(std::log(threshold) - std::log(last_), -most, most);
      error_ += gain * (std::fabs(change - drift_) - error_);
      drift_ += gain * (change - drift_);
    }
    last_ = threshold;
  }
  // The magnitudes were multiplied by this factor.
  void scale(float factor) { last_ *= std::fabs(factor); }

  struct State {
    float last, drift, error;
  };
  State state() const { return {last_, drift_, error_}; }
  void restore(const State& state) {
    last_ = state.last;
    drift_ = state.drift;
    error_ = state.error;
  }

 private:
  static constexpr float gain = 0.3f;
  static constexpr float least_margin = 0.01f;
  static constexpr float most_margin = 0.35f;
  static constexpr float errors_of_margin = 3;

  float expected() const { return last_ * std::exp(std::clamp(drift_, -0.3f, 0.3f)); }
  float margin() const { return std::clamp(errors_of_margin * error_, least_margin, most_margin); }

  float last_ = 0;
  float drift_ = 0;      // mean change of the logarithm
  float error_ = 0.05f;  // mean absolute error of the forecast's logarithm
};

}  // namespace pith

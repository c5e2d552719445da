// Parts of robust estimators: what an estimate knows, how much a sample far from it counts, how
// large the noise is, and when the noise no longer explains the samples. All are of logarithms of
// times, so that 1 us and 1 s are alike.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pith {

// About two in three such values are right within a factor of exp(log_sd).
struct Estimated {
  double value = 0;
  double log_sd = 0;
};

// Up to so many standard deviations a sample counts in full.
inline constexpr double huber_limit = 1.5;

// The weight of a sample in least squares by which it pulls no more than one at the limit: P.
// Huber, Robust estimation of a location parameter, Ann. Math. Statist. 35, 1964.
inline double huber_weight(double residual) {
  const double size = std::abs(residual);
  return size <= huber_limit ? 1 : huber_limit / size;
}

// The variance of the noise, by Proposal 2 of the same paper: squares of clipped residuals have the
// mean that they have for normal noise. Here as a running mean.
class NoiseScale {
 public:
  double variance() const { return variance_; }
  // `residual` in standard deviations, of which the noise is `share` in the variance, the rest
  // being that the estimate is not known well. `samples_max`: how many the mean goes over.
  void learn(double residual, double share, double samples_max) {
    constexpr double expected = 0.77846;  // of a clipped square, at the limit of 1.5
    const double clipped = std::min(residual * residual, huber_limit * huber_limit);
    samples_ = std::min(samples_ + 1, samples_max);
    variance_ *= 1 + share / samples_ * (clipped / expected - 1);
    variance_ = std::clamp(variance_, least * least, most * most);
  }
  // What follows counts as it did early on.
  void speed_up() { samples_ = std::min(samples_, 8.0); }

 private:
  // In virtual time there is no noise; a limit keeps rounding from being a surprise.
  static constexpr double least = 0.02;
  static constexpr double most = 1;
  double variance_ = 0.2 * 0.2;
  double samples_ = 2;
};

// One side of a cumulative sum (E. Page, Continuous inspection schemes, Biometrika 41, 1954) of
// residuals in standard deviations, clipped as in J. Lucas and R. Crosier, Robust CUSUM, Comm.
// Statist. 11, 1982: no single sample sets it off. One beyond the clip adds 2, one without surprise
// takes off 2, one on the other side 3 at most.
class StepDetector {
 public:
  explicit StepDetector(double threshold) : threshold_(threshold) {}
  // Whether samples have changed. `number` counts the samples.
  bool add(double residual, std::uint64_t number) {
    constexpr double slack = 2;
    if (sum_ == 0) since_ = number;
    sum_ = std::max(0.0, sum_ + std::clamp(residual, -1.0, 4.0) - slack);
    return sum_ > threshold_;
  }
  // The sample from which on they have.
  std::uint64_t since() const { return since_; }

 private:
  double threshold_;
  double sum_ = 0;
  std::uint64_t since_ = 0;
};

// Five late samples in a row are a change; four of 20 are noise. Noise makes nothing early, so
// three are enough.
struct StepDetectors {
  StepDetector late{9};
  StepDetector early{5};
};

}  // namespace pith

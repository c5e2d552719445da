// The common threshold of all ranks in ExDyna and MiCRO, and its rules. Pure arithmetic on agreed
// numbers: every rank gets the same threshold without a message.
//
//  released, intended  lambda starts as 1 / (2 sqrt(k)) and is scaled by 1.005, 1.00125, 0.9987 or
//                      0.995 depending on how many were elected. The authors' code never uses
//                      0.9987,
//                      because it compares with zero where it must have meant k
//  quantile            owners count the elements above 0.75 lambda by magnitude; the k-th of all of
//                      them is what lambda should have been. lambda follows it and its drift, since
//                      residuals grow for the first 1/density steps. If the k-th is outside the
//                      counted levels, as before the first step, ranks measure it first
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/exdyna_scheme.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

// Numbers of elements by magnitude, in levels of equal steps of a float's bits relative to lambda:
// 16 levels per octave, from about 0.75 lambda to 1.9. The last level includes everything larger.
struct MagnitudeLevels {
  static constexpr std::size_t size = 20;
  static constexpr std::size_t elected = 6;  // the level that begins at lambda
  static constexpr unsigned shift = 19;
  std::array<std::uint64_t, size> counts{};

  static float edge(std::size_t level, float lambda);
  void add(std::span<const float> values, float lambda);
};

class ExdynaThreshold {
 public:
  void begin(Rule rule) { rule_ = rule; }
  Rule rule() const { return rule_; }
  // False: the quantile must be measured before the next election.
  bool known() const { return lambda_ > 0; }
  double lambda() const { return lambda_; }
  // Magnitudes are elected if at least this large.
  float elects() const { return static_cast<float>(lambda_); }
  // The minimum magnitude that owners count in the levels.
  float counts() const;

  // Before the first election, for the authors' rules.
  void start(std::size_t k);
  // Takes a histogram of all ranks' own partitions, or its part above the k-th magnitude.
  void measure(std::span<const std::uint64_t, MagnitudeHistogram::bins> counts, std::size_t k);
  // After a step that elected `elected` elements; `levels` of all ranks, for `quantile`.
  void follow(std::uint64_t elected, const MagnitudeLevels& levels, std::size_t k);
  void scale(double factor) {
    lambda_ *= factor < 0 ? -factor : factor;
    last_ *= factor < 0 ? -factor : factor;
  }

  struct State {
    double lambda = 0;
    double drift = 0;
    double last = 0;
    std::uint32_t measured = 0;
  };
  State state() const { return {lambda_, drift_, last_, measured_}; }
  void restore(const State& state) {
    lambda_ = state.lambda;
    drift_ = state.drift;
    last_ = state.last;
    measured_ = state.measured;
  }

 private:
  void follow_authors(double ratio);
  void follow_quantile(const MagnitudeLevels& levels, std::size_t k);
  void forget() { lambda_ = 0; }

  Rule rule_ = Rule::quantile;
  double lambda_ = 0;           // 0: unknown
  double drift_ = 0;            // of log lambda, per step
  double last_ = 0;             // the k-th magnitude measured last; 0: none
  std::uint32_t measured_ = 0;  // number of measurements, up to first_measurements
};

}  // namespace pith

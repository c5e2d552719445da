// A link's seconds a message and a byte, learnt from how long transfers took, each with what is not
// known of it. Also good for anything else that takes a start and a time per byte.
//
// The model is log t = log(alpha + beta * bytes) + noise: noise is relative, so that 8 bytes and 64
// MiB count alike, and logarithms of alpha and beta are estimated, which keeps both positive.
// Linearised, with x = (alpha, beta * bytes) / (alpha + beta * bytes), this is least squares on
// t = alpha + beta * bytes with weights 1 / t^2. Its parts:
// - recursive Gauss-Newton steps: L. Ljung and T. Soderstrom, Theory and Practice of Recursive
//   Identification, 1983, chapter 3;
// - late samples are clipped by Huber's weight, from which both the estimate and its certainty
//   follow: Y. Zou, S. Chan and T. Ng, A recursive least M-estimate (RLM) adaptive filter, IEEE
//   Signal Process. Lett. 7, 2000;
// - forgetting only in the direction of what a sample tells: L. Cao and H. Schwartz, A directional
//   forgetting algorithm based on the decomposition of the information matrix, Automatica 36, 2000.
//   A stream of long messages thus does not forget alpha;
// - cumulative sums of residuals notice a step (StepDetector), one pair for transfers of which
//   alpha is the larger part, one for the others; then the last samples are fitted anew.
//
// Not for several threads. Nothing is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/algorithm.hpp"
#include "model/robust.hpp"

namespace pith {

enum class LinkStep : std::uint8_t { none, latency, bandwidth };

class LinkEstimate {
 public:
  struct Options {
    double samples = 256;         // how many of late samples decide; more: steadier, and slower
    double nominal_log_sd = 1.5;  // how well the nominal values are known
  };

  LinkEstimate(const LinkCost& nominal, const Options& options);
  explicit LinkEstimate(const LinkCost& nominal) : LinkEstimate(nominal, Options()) {}

  // Tells which of the two changed if the sample shows that one did. A time that is not positive
  // is ignored: the clock was too coarse.
  LinkStep add(std::size_t bytes, double seconds);

  Estimated alpha() const { return {alpha_, std::sqrt(covariance().aa)}; }
  Estimated beta() const { return {beta_, std::sqrt(covariance().bb)}; }
  // Of the transfer without its noise.
  Estimated seconds(std::size_t bytes) const;
  std::uint64_t samples() const { return samples_; }
  // By samples or by an earlier run's; else all is nominal.
  bool learnt() const { return samples_ > 0 || restored_; }
  // How many steps were noticed.
  std::uint64_t steps() const { return steps_; }
  // Begins with what an earlier run learnt, as a guess that some samples overrule.
  void restore(const Estimated& alpha, const Estimated& beta);

 private:
  // A symmetric matrix of (log alpha, log beta).
  struct Matrix {
    double aa = 0;
    double ab = 0;
    double bb = 0;
    Matrix inverse() const;
    void add(double factor, double a, double b);  // the outer product of (a, b)
  };
  // What a transfer tells: the shares of alpha and of beta in its time.
  struct Shares {
    double a = 0;
    double b = 0;
    double seconds = 0;
    std::size_t part() const { return a >= 0.5 ? 0 : 1; }
    double through(const Matrix& matrix) const;
  };
  struct Sample {
    std::size_t bytes = 0;
    double seconds = 0;
  };
  static constexpr std::size_t recent_count = 16;

  Matrix covariance() const { return information_.inverse(); }
  Shares shares(std::size_t bytes) const;
  void learn(const Shares& shares, double weight, double noise);
  void move(double log_alpha, double log_beta);
  void jump(double log_alpha, double log_beta);
  LinkStep fit_anew(std::uint64_t since, std::size_t part);
  double improve(const Matrix& known, const Estimated& alpha, const Estimated& beta,
                 std::uint64_t since);

  Options options_;
  double alpha_;
  double beta_;
  Matrix information_;
  // Of transfers of which alpha is the larger part, and of the others: short messages are noisier.
  std::array<NoiseScale, 2> noise_;
  std::array<StepDetectors, 2> detectors_;
  std::array<Sample, recent_count> recent_;
  std::uint64_t samples_ = 0;
  std::uint64_t steps_ = 0;
  bool restored_ = false;
};

}  // namespace pith

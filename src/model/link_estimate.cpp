#include "model/link_estimate.hpp"

#include <algorithm>
#include <cmath>

namespace pith {

namespace {

// Beyond these no link is; they keep absurd samples from becoming infinities.
constexpr double least_alpha = 1e-12;
constexpr double most_alpha = 1e4;
constexpr double least_beta = 1e-18;
constexpr double most_beta = 1;
// What an earlier run learnt is known at best within so much, and so is, after a step, the
// parameter that has not shown it.
constexpr double guess_log_sd = 0.5;

constexpr double square(double x) { return x * x; }

}  // namespace

LinkEstimate::Matrix LinkEstimate::Matrix::inverse() const {
  const double factor = 1 / (aa * bb - ab * ab);
  return {bb * factor, -ab * factor, aa * factor};
}

void LinkEstimate::Matrix::add(double factor, double a, double b) {
  aa += factor * a * a;
  ab += factor * a * b;
  bb += factor * b * b;
}

LinkEstimate::LinkEstimate(const LinkCost& nominal, const Options& options)
    : options_(options), alpha_(nominal.alpha), beta_(nominal.beta) {
  const double certainty = 1 / square(options_.nominal_log_sd);
  information_ = {certainty, 0, certainty};
}

LinkEstimate::Shares LinkEstimate::shares(std::size_t bytes) const {
  const double moving = beta_ * static_cast<double>(bytes);
  const double all = alpha_ + moving;
  return {alpha_ / all, moving / all, all};
}

double LinkEstimate::Shares::through(const Matrix& matrix) const {
  return a * (a * matrix.aa + 2 * b * matrix.ab) + b * b * matrix.bb;
}

Estimated LinkEstimate::seconds(std::size_t bytes) const {
  const Shares x = shares(bytes);
  return {x.seconds, std::sqrt(x.through(covariance()))};
}

LinkStep LinkEstimate::add(std::size_t bytes, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return LinkStep::none;
  const Shares x = shares(bytes);
  const std::size_t part = x.part();
  const Matrix p = covariance();
  const double noise = noise_[part].variance();
  const double unknown = x.through(p);
  const double certainty = 1 / (noise + unknown);
  const double residual = std::log(seconds / x.seconds);
  const double surprise = residual * std::sqrt(certainty);

  recent_[samples_ % recent_count] = {bytes, seconds};
  StepDetectors& detectors = detectors_[part];
  const bool late = detectors.late.add(surprise, samples_);
  const bool early = detectors.early.add(-surprise, samples_);
  ++samples_;
  noise_[part].learn(surprise, noise * certainty, options_.samples);
  if (late) return fit_anew(detectors.late.since(), part);
  if (early) return fit_anew(detectors.early.since(), part);

  const double weight = huber_weight(surprise);
  const double step = weight * residual / (noise + weight * unknown);
  learn(x, weight, noise);
  move((p.aa * x.a + p.ab * x.b) * step, (p.ab * x.a + p.bb * x.b) * step);
  return LinkStep::none;
}

// What is forgotten is what the sample speaks about, as much as it counts itself.
void LinkEstimate::learn(const Shares& x, double weight, double noise) {
  const double a = information_.aa * x.a + information_.ab * x.b;
  const double b = information_.ab * x.a + information_.bb * x.b;
  information_.add(-weight / (options_.samples * (x.a * a + x.b * b)), a, b);
  information_.add(weight / noise, x.a, x.b);
}

// A small step is one of alpha and beta themselves, of which a transfer's time is a linear
// function: all samples of one size then speak about the same sum, whatever else is assumed, and
// millions of them tell nothing of its parts. A large step is one of logarithms, in which ignorance
// is even.
void LinkEstimate::move(double log_alpha, double log_beta) {
  constexpr double small = 0.25;
  if (std::max(std::abs(log_alpha), std::abs(log_beta)) > small) return jump(log_alpha, log_beta);
  const double a = 1 + log_alpha;
  const double b = 1 + log_beta;
  alpha_ *= a;
  beta_ *= b;
  information_ = {information_.aa * a * a, information_.ab * a * b, information_.bb * b * b};
}

void LinkEstimate::jump(double log_alpha, double log_beta) {
  alpha_ = std::clamp(alpha_ * std::exp(log_alpha), least_alpha, most_alpha);
  beta_ = std::clamp(beta_ * std::exp(log_beta), least_beta, most_beta);
}

// The samples since the step decide, and the estimate before it as far as they do not. The residual
// that showed the step may come from either parameter, so both are left open.
LinkStep LinkEstimate::fit_anew(std::uint64_t since, std::size_t part) {
  const Estimated alpha = this->alpha();
  const Estimated beta = this->beta();
  const double open = square(options_.nominal_log_sd);
  const auto certainty = [&](const Estimated& before, bool shown) {
    return 1 / (shown ? open : std::min(open, square(before.log_sd) + square(guess_log_sd)));
  };
  const Matrix known = {certainty(alpha, part == 0), 0, certainty(beta, part == 1)};
  double moved = 1;
  for (int i = 0; i < 20 && moved > 1e-3; ++i) moved = improve(known, alpha, beta, since);
  for (NoiseScale& noise : noise_) noise.speed_up();
  detectors_ = {};
  ++steps_;
  const bool by_alpha =
      std::abs(std::log(alpha_ / alpha.value)) > std::abs(std::log(beta_ / beta.value));
  return by_alpha ? LinkStep::latency : LinkStep::bandwidth;
}

// A step of Gauss and Newton towards Huber's estimate from the samples since then and from what was
// known; how far it went.
double LinkEstimate::improve(const Matrix& known, const Estimated& alpha, const Estimated& beta,
                             std::uint64_t since) {
  const std::uint64_t count = std::min<std::uint64_t>(samples_ - since, recent_count);
  Matrix information = known;
  double a = known.aa * std::log(alpha.value / alpha_);
  double b = known.bb * std::log(beta.value / beta_);
  for (std::uint64_t i = samples_ - count; i < samples_; ++i) {
    const Sample& sample = recent_[i % recent_count];
    const Shares x = shares(sample.bytes);
    const double noise = noise_[x.part()].variance();
    const double residual = std::log(sample.seconds / x.seconds);
    const double weight = huber_weight(residual / std::sqrt(noise)) / noise;
    information.add(weight, x.a, x.b);
    a += weight * residual * x.a;
    b += weight * residual * x.b;
  }
  information_ = information;
  const Matrix p = covariance();
  const double by_alpha = p.aa * a + p.ab * b;
  const double by_beta = p.ab * a + p.bb * b;
  jump(by_alpha, by_beta);
  return std::max(std::abs(by_alpha), std::abs(by_beta));
}

void LinkEstimate::restore(const Estimated& alpha, const Estimated& beta) {
  const auto certainty = [&](const Estimated& saved) {
    return 1 /
           std::min(square(saved.log_sd) + square(guess_log_sd), square(options_.nominal_log_sd));
  };
  alpha_ = std::clamp(alpha.value, least_alpha, most_alpha);
  beta_ = std::clamp(beta.value, least_beta, most_beta);
  information_ = {certainty(alpha), 0, certainty(beta)};
  restored_ = true;
}

}  // namespace pith

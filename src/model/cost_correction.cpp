#include "model/cost_correction.hpp"

#include <algorithm>
#include <cmath>

#include "model/choices.hpp"

namespace pith {

namespace {

// Beyond so many classes, the factor has changed too much to tell anything.
constexpr std::size_t reach = 6;

}  // namespace

CostCorrection::CostCorrection(std::size_t algorithms, const Options& options)
    : options_(options), cells_(algorithms * SizeClass::count) {}

CostCorrection::Belief CostCorrection::belief(std::size_t algorithm, std::size_t size) const {
  const double change = options_.change_log_sd * options_.change_log_sd;
  const std::size_t first = size - std::min(size, reach);
  const std::size_t last = std::min(size + reach, SizeClass::count - 1);
  double certainty = 1 / (options_.expected_log_sd * options_.expected_log_sd);
  double sum = 0;
  for (std::size_t other = first; other <= last; ++other) {
    const Cell& cell = cells_[algorithm * SizeClass::count + other];
    if (cell.weight == 0) continue;
    const double distance = static_cast<double>(std::max(size, other) - std::min(size, other));
    const double its = 1 / (cell.noise.variance() / cell.weight + distance * change);
    certainty += its;
    sum += its * cell.mean;
  }
  return {sum / certainty, 1 / certainty};
}

void CostCorrection::add(std::size_t algorithm, std::size_t bytes, double measured,
                         double predicted) {
  const double ratio = measured / predicted;
  if (!(ratio > 0) || !std::isfinite(ratio)) return;
  const std::size_t size = SizeClass(bytes).index();
  Cell& cell = cells_[algorithm * SizeClass::count + size];
  const Belief before = belief(algorithm, size);
  const double variance = cell.noise.variance() + before.variance;
  const double unit = std::sqrt(variance);
  const double surprise = (std::log(ratio) - before.mean) / unit;
  cell.noise.learn(surprise, cell.noise.variance() / variance, options_.samples);
  const double clipped = unit * std::clamp(surprise, -huber_limit, huber_limit);
  cell.weight = std::min(cell.weight + 1, options_.samples);
  cell.mean += (before.mean + clipped - cell.mean) / cell.weight;
}

double CostCorrection::noise(std::size_t algorithm, std::size_t bytes) const {
  return std::sqrt(
      cells_[algorithm * SizeClass::count + SizeClass(bytes).index()].noise.variance());
}

void CostCorrection::forget(std::size_t algorithm, std::size_t bytes) {
  Cell& cell = cells_[algorithm * SizeClass::count + SizeClass(bytes).index()];
  cell.weight = std::min(cell.weight, 1.0);
  cell.noise.speed_up();
}

Estimated CostCorrection::factor(std::size_t algorithm, std::size_t bytes) const {
  const Belief now = belief(algorithm, SizeClass(bytes).index());
  return {std::exp(now.mean), std::sqrt(now.variance)};
}

}  // namespace pith

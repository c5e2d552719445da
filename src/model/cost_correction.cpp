#include "model/cost_correction.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pith {

namespace {

// 0 bytes, 1 to 3, 4 to 15 and so on.
constexpr std::size_t size_count = 33;
std::size_t size_class(std::size_t bytes) {
  return (static_cast<std::size_t>(std::bit_width(bytes)) + 1) / 2;
}
// Beyond, the factor has changed too much to tell anything.
constexpr std::size_t reach = 3;

}  // namespace

CostCorrection::CostCorrection(std::size_t algorithms, const Options& options)
    : options_(options), cells_(algorithms * size_count) {}

CostCorrection::Belief CostCorrection::belief(std::size_t algorithm, std::size_t size) const {
  const double change = options_.change_log_sd * options_.change_log_sd;
  const std::size_t first = size - std::min(size, reach);
  const std::size_t last = std::min(size + reach, size_count - 1);
  double certainty = 1 / (options_.expected_log_sd * options_.expected_log_sd);
  double sum = 0;
  for (std::size_t other = first; other <= last; ++other) {
    const Cell& cell = cells_[algorithm * size_count + other];
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
  const std::size_t size = size_class(bytes);
  Cell& cell = cells_[algorithm * size_count + size];
  const Belief before = belief(algorithm, size);
  const double variance = cell.noise.variance() + before.variance;
  const double unit = std::sqrt(variance);
  const double surprise = (std::log(ratio) - before.mean) / unit;
  cell.noise.learn(surprise, cell.noise.variance() / variance, options_.samples);
  const double clipped = unit * std::clamp(surprise, -huber_limit, huber_limit);
  cell.weight = std::min(cell.weight + 1, options_.samples);
  cell.mean += (before.mean + clipped - cell.mean) / cell.weight;
}

Estimated CostCorrection::factor(std::size_t algorithm, std::size_t bytes) const {
  const Belief now = belief(algorithm, size_class(bytes));
  return {std::exp(now.mean), std::sqrt(now.variance)};
}

}  // namespace pith

#include "compress/election.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pith {

double score_of(double measure) {
  if (std::isnan(measure) || measure <= 0) return 0;
  return std::min(measure, std::numeric_limits<double>::max());
}

int first_largest(std::span<const double> scores) {
  return static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

double largest_squares(const MagnitudeHistogram& histogram, std::size_t k) {
  double squares = 0;
  for (std::size_t bin = MagnitudeHistogram::bins; bin-- > 0 && k > 0;) {
    const std::uint64_t count = histogram.counts[bin];
    if (count > k) {
      return squares + histogram.squares[bin] * (double(k) / static_cast<double>(count));
    }
    squares += histogram.squares[bin];
    k -= count;
  }
  return squares;
}

void SmoothedNorm::saw(double norm) {
  if (!std::isfinite(norm)) return;
  state_.norms[state_.next] = norm;
  state_.next = static_cast<std::uint32_t>((state_.next + 1) % window);
  state_.count = std::min<std::uint32_t>(state_.count + 1, window);
}

double SmoothedNorm::value() const {
  double sum = 0;
  double weights = 0;
  double weight = 1;
  for (std::uint32_t age = 1; age <= state_.count; ++age) {
    weight *= 1 - smoothing;
    sum += weight * state_.norms[(state_.next + window - age) % window];
    weights += weight;
  }
  return state_.count == 0 ? 0 : sum / weights;
}

void SmoothedNorm::scale(double factor) {
  for (double& norm : state_.norms) norm *= std::fabs(factor);
}

void Succession::saw(std::span<const double> scores, int leader) {
  std::vector<std::uint64_t>& waited = state_.waited;
  if (waited.size() != scores.size()) waited.assign(scores.size(), 0);
  for (std::uint64_t& steps : waited) ++steps;
  waited[static_cast<std::size_t>(leader)] = 0;
  const auto longest = std::max_element(waited.begin(), waited.end());
  const bool overdue = *longest >= most_turns * scores.size();
  state_.next = overdue ? static_cast<int>(longest - waited.begin()) : first_largest(scores);
}

}  // namespace pith

#include "compress/thresholds/sure_magnitude.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pith {

// Elements that are certain leave less to draw for the others, whose probabilities rise; which
// makes more of them certain. The greedy steps of the paper, whose program makes two.
float sure_magnitude(const MagnitudeHistogram& histogram, double k) {
  constexpr int steps = 32;
  constexpr float least = std::numeric_limits<float>::min();
  const TailSums all = tail_of(histogram, 0);
  if (!(all.sum > 0)) return least;
  double sure = all.sum / k;
  for (int step = 0; step < steps; ++step) {
    const TailSums certain = tail_of(histogram, static_cast<float>(sure));
    const double drawn = k - certain.count;  // of the others
    const double rest = all.sum - certain.sum;
    // All that are not zero are to be sent, or nearly.
    if (!(drawn > 0) || !(rest > 0)) break;
    const double next = rest / drawn;
    if (!(next < sure * (1 - 1e-6))) break;
    sure = next;
  }
  const double most = double(std::numeric_limits<float>::max());
  return std::max(static_cast<float>(std::min(sure, most)), least);
}

}  // namespace pith

#include "compress/thresholds/magnitude_tail.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pith {

namespace {

// Where a bin begins, and the one before it ends.
float begin_of(std::size_t bin) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bin) << MagnitudeHistogram::shift);
}
std::size_t bin_of(float magnitude) {
  return std::bit_cast<std::uint32_t>(magnitude) >> MagnitudeHistogram::shift;
}
// Bins of finite magnitudes.
constexpr std::size_t finite_bins = 0x7f800000u >> MagnitudeHistogram::shift;

}  // namespace

TailSums tail_of(const MagnitudeHistogram& histogram, float threshold) {
  TailSums tail;
  const std::size_t first = std::min(bin_of(std::max(threshold, 0.0f)), finite_bins);
  for (std::size_t bin = finite_bins; bin-- > first;) {
    double count = double(histogram.counts[bin]);
    double squares = histogram.squares[bin];
    double sum = std::sqrt(count * squares);
    const bool is_cut = bin == first && threshold > begin_of(bin);
    if (is_cut) {
      const double begin = begin_of(bin);
      const double end = std::min(begin_of(bin + 1), std::bit_cast<float>(0x7f7fffffu));
      const double cut = threshold;
      count *= (end - cut) / (end - begin);
      sum = count * (cut + end) / 2;
      squares = count * (cut * cut + cut * end + end * end) / 3;
    }
    tail.count += count;
    tail.sum += sum;
    tail.squares += squares;
  }
  return tail;
}

float begin_of_bin(float magnitude) { return begin_of(bin_of(magnitude)); }

float threshold_for(const MagnitudeHistogram& histogram, double count) {
  double above = 0;
  for (std::size_t bin = finite_bins; bin-- > 1;) {
    const double here = double(histogram.counts[bin]);
    if (above + here < count) {
      above += here;
      continue;
    }
    const double begin = begin_of(bin);
    const double end = std::min(begin_of(bin + 1), std::bit_cast<float>(0x7f7fffffu));
    return static_cast<float>(end - (end - begin) * (count - above) / here);
  }
  return 0;
}

}  // namespace pith

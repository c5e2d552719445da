// Sums over all magnitudes from a threshold on, for any threshold, from one pass over the vector: a
// histogram of it.
#pragma once

#include "core/sparse_kernel_args.hpp"

namespace pith {

// Of the elements whose magnitude is at least a threshold.
struct TailSums {
  double count = 0;
  double sum = 0;      // of the magnitudes
  double squares = 0;  // of them

  double mean() const { return sum / count; }
};

// Exact where a bin begins, but for `sum`: a bin has the sum of squares, and its mean is taken to
// be their root mean, which is at most 0.05 % more where elements lie evenly in a bin a sixteenth
// of an octave wide. Inside a bin elements are taken to lie evenly.
TailSums tail_of(const MagnitudeHistogram& histogram, float threshold);

// Where the bin of a magnitude begins: from there on a count is exact.
float begin_of_bin(float magnitude);

// A threshold that about so many magnitudes reach; 0: so many are not zero, or fewer. Inside a bin
// elements are taken to lie evenly.
float threshold_for(const MagnitudeHistogram& histogram, double count);

}  // namespace pith

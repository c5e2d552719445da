// The probabilities with which elements are drawn without bias, so that about k are and the
// variance is the least: in proportion to their magnitudes, but at most one. [Wangni et al.,
// "Gradient sparsification for communication-efficient distributed optimization", NeurIPS 2018,
// algorithm 3]
#pragma once

#include "compress/thresholds/magnitude_tail.hpp"

namespace pith {

// The magnitude from which on elements are certain to be drawn; a smaller one is drawn with the
// probability magnitude / sure. More than zero.
float sure_magnitude(const MagnitudeHistogram& histogram, double k);

}  // namespace pith

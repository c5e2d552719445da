// SIDCo's threshold: the magnitudes are taken to follow a law, which is fitted to their mean; then,
// stage by stage, another one to what exceeds the last threshold, since only the tail matters and
// its shape is not that of the whole. [Abdelmoniem et al., "An efficient statistical-based gradient
// compression technique", MLSys 2021]
#pragma once

#include <cstdint>

#include "compress/thresholds/magnitude_tail.hpp"

namespace pith {

// Of what exceeds a threshold: one parameter, from the mean, or two, from mean and variance.
enum class TailLaw : std::uint8_t { exponential, pareto };

// The threshold that a part `density` of all `count` elements reaches by the law. The first stage
// keeps a quarter, the others equal ratios of what is left. Where that is above all magnitudes, the
// threshold which about this part reaches, as counted. More than zero: zeros are not elected.
float fitted_threshold(const MagnitudeHistogram& histogram, std::size_t count, double density,
                       TailLaw law, std::uint32_t stages);

// More stages are too few elements for a fit each: a half is what a stage keeps at most.
std::uint32_t most_stages(double density);

}  // namespace pith

// What coding values with few bits loses, by a sample of them.
#pragma once

#include <span>

#include "core/compute.hpp"
#include "core/sparse/coding.hpp"

namespace pith {

// The expected squares of what values of these magnitudes, all of them finite, lose by a coding. By
// levels that are drawn it is computed, by other codings tried: two_means, which has a mean for
// either sign, may lose less of values with two signs. Where the sample is from many blocks it
// loses more than they do, as their scales differ. Nothing is counted of bf16: a millionth.
double squares_lost(Compute& host, const Coding& coding, std::span<const float> magnitudes);

}  // namespace pith

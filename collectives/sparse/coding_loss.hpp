// What coding values with few bits loses, by a sample of them.
#pragma once

#include <span>

#include "core/sparse/coding.hpp"

namespace pith {

// The expected squares of what values of these magnitudes, all of them finite, lose by a coding in
// levels that draws. Where the sample is from many blocks it loses more than they do, as their
// scales differ. Nothing is counted of codings that round to the nearest, as bf16: a millionth.
double squares_lost(const Coding& coding, std::span<const float> magnitudes);

}  // namespace pith

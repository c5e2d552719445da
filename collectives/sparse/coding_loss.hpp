// What coding values with few bits loses, by a sample of them.
#pragma once

#include <span>

#include "core/sparse_kernel_args.hpp"

namespace pith {

// The expected squares of what values of these magnitudes, all of them finite, lose. Where the
// sample is from many blocks it loses more than they do, as their scales differ. For `levels`;
// nothing is counted of `bf16`, which loses a millionth.
double squares_lost(const Coding& coding, std::span<const float> magnitudes);

}  // namespace pith

// What ranks draw of their matrices (atomo), by the library's own draws, which its tests compare
// with plain ones.
#pragma once

#include <cstdint>
#include <span>

#include "compress/spec.hpp"

namespace pith_perf {

// Adds what a rank sends in the call of this step, of one vector whose matrices are not stated, to
// `sum`. Returns how large it may be in any element.
double add_drawn(const pith::Spec& spec, std::uint64_t step, int rank,
                 std::span<const float> gradient, std::span<double> sum);

}  // namespace pith_perf

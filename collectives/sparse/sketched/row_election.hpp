// Which rows of a matrix matter most, by a sketch of it.
#pragma once

#include <cstdint>
#include <span>

#include "core/compute.hpp"

namespace pith {

// Of `sketch`, row by row with `columns` numbers each, the `k` rows of the largest norms, at least
// one and at most all; of equal norms the lowest rows. A norm beyond float32, or of what is not a
// number, is the largest. Writes the rows to `elected`, which has room for all rows, ascending; for
// the same sketch they are the same on every CPU. `norms`: room for as many numbers.
void elect_rows(Compute& host, std::span<const float> sketch, std::size_t columns, std::size_t k,
                std::span<std::uint32_t> elected, std::span<float> norms);

}  // namespace pith

// How much calls send of matrices whose rows are elected by sketches.
#pragma once

#include <cstddef>

#include "compress/compressor.hpp"

namespace pith {

struct RowCounts {
  std::size_t sketch = 0;    // float32 of the sketches
  std::size_t elements = 0;  // of the elected rows, and of what is sent whole
};

// The rows that a density elects of a matrix are max(1, floor(density * rows)).
RowCounts row_counts(const LowRankLayout& layout, double density);
// Of a vector of unknown shape, without making its layout.
RowCounts square_row_counts(std::size_t count, std::size_t sketch, double density);
// The most elements that a rank elects of a vector in a call, whatever the scheme; precondition: it
// elects a number that the density determines.
std::size_t most_elected(const Compressor& compressor, std::size_t count);

}  // namespace pith

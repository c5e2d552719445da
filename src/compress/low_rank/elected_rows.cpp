#include "compress/low_rank/elected_rows.hpp"

#include "compress/scheme.hpp"

namespace pith {

RowCounts row_counts(const LowRankLayout& layout, double density) {
  RowCounts all;
  for (const LowRankPart& part : layout.parts()) {
    const auto [rows, columns, sketch] = part.shape;
    all.sketch += rows * sketch;
    all.elements += part.is_factored() ? elected_of(density, rows) * columns : part.count;
  }
  return all;
}

RowCounts square_row_counts(std::size_t count, std::size_t sketch, double density) {
  const auto [rows, columns] = LowRankLayout::square_matrix(count, sketch);
  if (rows == 0) return {0, count};
  return {rows * sketch, elected_of(density, rows) * columns + count - rows * columns};
}

std::size_t most_elected(const Compressor& compressor, std::size_t count) {
  const Spec& spec = compressor.spec();
  const double density = spec.largest_density();
  const std::size_t sketch = sketch_of(spec);
  if (sketch == 0) return elected_of(density, count);
  const auto& known = compressor.low_rank.layout;
  const RowCounts rows =
      known ? row_counts(*known, density) : square_row_counts(count, sketch, density);
  return rows.elements;
}

}  // namespace pith

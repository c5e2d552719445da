// Which matrices a vector consists of to a scheme: what its user has stated, or what is assumed.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "compress/low_rank/layout.hpp"
#include "compress/scheme.hpp"

namespace pith {

// How many elements a matrix's smaller side may have: of schemes that decompose matrices the key
// `side`.
inline std::size_t most_side(const Spec& spec) {
  return draws_factors(spec) ? static_cast<std::size_t>(spec.numbers[0]) : LowRankLayout::any_rows;
}

// The matrices, of which those with larger sides are cut into bands of rows, about equally many.
inline std::vector<MatrixShape> in_bands(std::span<const MatrixShape> matrices, std::size_t side) {
  std::vector<MatrixShape> bands;
  for (const auto& [rows, columns] : matrices) {
    const std::size_t smaller = std::min<std::size_t>(rows, columns);
    const std::size_t number = smaller > side ? (rows - 1) / side + 1 : 1;
    for (std::size_t i = 0; i < number; ++i) {
      bands.push_back({rows * (i + 1) / number - rows * i / number, columns});
    }
  }
  return bands;
}

inline LowRankLayout stated_layout(const Spec& spec, std::span<const MatrixShape> matrices) {
  return {in_bands(matrices, most_side(spec)), layout_rank_of(spec)};
}

// Of a vector without: nearly square, or with the most rows.
inline LowRankLayout unstated_layout(const Spec& spec, std::size_t count) {
  return LowRankLayout::square(count, layout_rank_of(spec), most_side(spec));
}
// How many float32 factors and elements of it have, without making the layout.
inline LowRankCounts unstated_counts(const Spec& spec, std::size_t count) {
  return LowRankLayout::square_counts(count, layout_rank_of(spec), most_side(spec));
}

}  // namespace pith

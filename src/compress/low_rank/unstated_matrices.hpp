// The matrices of a vector whose user has stated none.
#pragma once

#include "compress/low_rank/layout.hpp"
#include "compress/scheme.hpp"

namespace pith {

// Nearly square, or with so few rows that they are soon decomposed.
inline std::size_t most_unstated_rows(const Spec& spec) {
  constexpr std::size_t soon_decomposed = 256;
  return draws_factors(spec) ? soon_decomposed : LowRankLayout::any_rows;
}
inline LowRankLayout unstated_layout(const Spec& spec, std::size_t count) {
  return LowRankLayout::square(count, layout_rank_of(spec), most_unstated_rows(spec));
}
// How many float32 factors and elements have, without making the layout.
inline LowRankCounts unstated_counts(const Spec& spec, std::size_t count) {
  return LowRankLayout::square_counts(count, layout_rank_of(spec), most_unstated_rows(spec));
}

}  // namespace pith

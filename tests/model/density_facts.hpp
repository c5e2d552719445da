// What tests of choices among densities and forms have in common: links, and what ranks agreed on.
#pragma once

#include <cmath>
#include <cstddef>

#include "collectives/algorithm.hpp"
#include "collectives/chooser.hpp"
#include "compress/spec.hpp"

namespace pith::test {

inline constexpr std::size_t count = 25'000'000;
inline constexpr int ranks = 4;
inline constexpr LinkCost nominal{20e-6, 0.8e-9, 0};
inline constexpr LinkCost slow{20e-6, 80e-9, 0};
inline constexpr LinkCost fast{2e-6, 0.01e-9, 0};

// Few elements have most of the squares: gain = density^power. `losses`: by coded form.
inline DensityFacts facts_of(const Spec& spec, double power, double between_s,
                             const decltype(DensityFacts::losses)& losses) {
  DensityFacts found;
  const Candidates all = candidates_of(spec);
  for (std::size_t i = 0; i < all.count; ++i) found.gains[i] = std::pow(all[i], power);
  found.losses = losses;
  found.between_s = between_s;
  return found;
}

}  // namespace pith::test

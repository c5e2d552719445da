// What the calls of a vector with density=auto are planned by. Equal on all ranks, since only
// agreed numbers enter. Plain values: kept with each call for undoing it, and saved.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compress/spec.hpp"

namespace pith {

// Sums of the normal equations for seconds = messages * alpha + bytes * beta.
struct LinkSums {
  double messages_messages = 0;
  double messages_bytes = 0;
  double bytes_bytes = 0;
  double messages_seconds = 0;
  double bytes_seconds = 0;
};

struct DensityControl {
  double density = 0;                 // of the next call; 1: it is dense; 0: nothing is known yet
  std::uint64_t count = 0;            // elements of the last call, of all its tensors; 0: none yet
  std::uint64_t looked_at_until = 0;  // the step
  LinkSums link;
};

// The densities among which is chosen, from least to largest.
inline constexpr std::size_t density_candidates = 16;
inline double candidate_density(const Spec& spec, std::size_t i) {
  const double least = spec.least_density;
  const double ratio = double(spec.most_density) / least;
  return least * std::pow(ratio, double(i) / double(density_candidates - 1));
}
// The candidate next to a density.
inline std::size_t nearest_candidate(const Spec& spec, double density) {
  std::size_t nearest = 0;
  for (std::size_t i = 1; i < density_candidates; ++i) {
    const auto distance = [&](std::size_t one) {
      return std::abs(std::log(candidate_density(spec, one) / density));
    };
    if (distance(i) < distance(nearest)) nearest = i;
  }
  return nearest;
}

// Gains and links change slowly, and agreeing takes messages: in the first steps, then seldom, and
// after a change, which may have been a mistake.
inline bool adapts_density(std::uint64_t step, const DensityControl& control) {
  constexpr std::uint64_t first = 4;
  constexpr std::uint64_t every = 16;
  if (step == 0) return false;
  return step <= first || step <= control.looked_at_until || step % every == 0;
}

}  // namespace pith

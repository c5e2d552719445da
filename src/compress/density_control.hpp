// What the calls of a vector are planned by: their density (density=auto), and whether they are
// dense (bypass=auto). Equal on all ranks, since only agreed numbers enter. Plain values: kept with
// each call for undoing it; that of the density is saved.
#pragma once

#include <array>
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
  double density = 0;       // of the next call; 0: nothing is known yet
  std::uint64_t count = 0;  // elements of the last call, of all its tensors; 0: none yet
  std::uint64_t next = 0;   // the step in which ranks agree next, or any before the present one
  LinkSums link;
  Form form = Form::none;  // of the next call
  // A probe is a call of other bytes than the best choice has, for what they tell.
  bool probes = false;       // the next call is one
  bool moved = false;        // the link has changed since the last one
  std::uint64_t probed = 0;  // the step of the last probe or change; 0: none yet
  // Of `auto`, by elected form: what its last calls sent of what the sample promised of the largest
  // elements, in squares; 0: not known.
  std::array<float, form_count - coded_form_count - 1> shares{};

  float& share(Form one) { return shares[number_of(one) - coded_form_count - 1]; }
  float share(Form one) const { return shares[number_of(one) - coded_form_count - 1]; }
};

// With a fixed density both ways of a call are timed in rounds: three calls as the ones before,
// then up to three of the other way. Between rounds a call in many is timed, to see that times
// change.
struct BypassControl {
  static constexpr std::size_t samples = 3;
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  enum class Phase : std::uint8_t { measures, tries, watches };

  std::uint64_t count = 0;     // elements of a call, of all its tensors; 0: none yet
  std::uint64_t next = 0;      // the step in which ranks agree next
  std::uint64_t timed = 0;     // the last step in which they did; it is timed
  std::uint64_t retry = 0;     // the step from which on the other way is tried anew; 0: not known
  std::uint64_t earliest = 0;  // and however times change not before this one
  std::uint64_t interval = 0;  // of watching
  std::uint32_t losses = 0;    // how often in a row the other way was tried in vain
  std::uint32_t sampled = 0;
  Phase phase = Phase::measures;
  bool dense = false;                   // the next call, unless something else is agreed
  std::array<double, samples> times{};  // of this round
  std::array<double, 2> seconds{};      // compressed, dense: as measured last, or at best; 0: not
  LinkSums link;
};

// The densities among which is chosen, from least to largest.
inline constexpr std::size_t most_candidates = 16;
struct Candidates {
  std::array<double, most_candidates> densities{};
  std::size_t count = 0;

  double operator[](std::size_t i) const { return densities[i]; }
  // The one next to a density.
  std::size_t nearest(double density) const {
    const auto distance = [&](std::size_t i) { return std::abs(std::log(densities[i] / density)); };
    std::size_t nearest = 0;
    for (std::size_t i = 1; i < count; ++i) {
      if (distance(i) < distance(nearest)) nearest = i;
    }
    return nearest;
  }
};
// In equal steps; with objective=paper the authors' own, and the ends of the range.
Candidates candidates_of(const Spec& spec);

inline bool adapts_density(std::uint64_t step, const DensityControl& control) {
  return step > 0 && step >= control.next;
}

}  // namespace pith

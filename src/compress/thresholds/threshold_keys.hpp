// The keys of the schemes whose elections have a threshold or are drawn.
#pragma once

#include <limits>

#include "compress/scheme_keys.hpp"
#include "compress/thresholds/fitted_threshold.hpp"

namespace pith {

// threshold: the least magnitude that is sent.
inline float value_of(const Spec& spec) { return static_cast<float>(spec.numbers[0]); }
// sidco
inline TailLaw law_of(const Spec& spec) { return static_cast<TailLaw>(spec.choices[0]); }

namespace keys {

// Of schemes that do not adapt the density: a number.
inline constexpr Key fixed_density{
    .name = "density",
    .get = [](const Spec& spec) { return std::bit_cast<std::uint64_t>(spec.density); },
    .set = [](Spec& spec, std::uint64_t bits) { spec.density = std::bit_cast<double>(bits); },
    .kind = Key::Kind::real,
    .most = 1,
    .expected = "more than 0 and at most 1"};

}  // namespace keys

}  // namespace pith

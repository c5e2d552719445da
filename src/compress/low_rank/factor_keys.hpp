// What schemes that know matrices have in common: the key that says of which rank their factors or
// sketches are, and what they save.
#pragma once

#include "compress/scheme_keys.hpp"

namespace pith {

// In spec.choices[0].
inline std::size_t stated_rank(const Spec& spec) { return spec.choices[0]; }

namespace keys {

constexpr Key rank_named(std::string_view name, double most, std::string_view expected) {
  return {.name = name,
          .get = [](const Spec& spec) -> std::uint64_t { return spec.choices[0]; },
          .set = [](Spec& spec,
                    std::uint64_t rank) { spec.choices[0] = static_cast<std::uint8_t>(rank); },
          .kind = Key::Kind::integer,
          .least = 1,
          .most = most,
          .expected = expected};
}
inline constexpr Key factor_rank = rank_named("rank", 128, "1 to 128");

}  // namespace keys

// The matrices, and the right factors of schemes that keep them; empty before the shape is known.
void save_factors(const SchemeState& state, StateWriter& out);
bool load_factors(SchemeState& state, const StateShape& shape, StateReader& in);
inline constexpr StateSection factors_section{"low-rank", save_factors, load_factors};

}  // namespace pith

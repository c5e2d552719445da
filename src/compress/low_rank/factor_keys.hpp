// What schemes that send matrices as factors have in common: the key of their rank, and what they
// save.
#pragma once

#include "compress/scheme_keys.hpp"

namespace pith {

// In spec.choices[0].
inline std::size_t stated_rank(const Spec& spec) { return spec.choices[0]; }

namespace keys {

inline constexpr Key factor_rank{
    .name = "rank",
    .get = [](const Spec& spec) -> std::uint64_t { return spec.choices[0]; },
    .set = [](Spec& spec,
              std::uint64_t rank) { spec.choices[0] = static_cast<std::uint8_t>(rank); },
    .kind = Key::Kind::integer,
    .least = 1,
    .most = 128,
    .expected = "1 to 128"};

}  // namespace keys

// The matrices, and the right factors of schemes that keep them; empty before the shape is known.
void save_factors(const SchemeState& state, StateWriter& out);
bool load_factors(SchemeState& state, const StateShape& shape, StateReader& in);
inline constexpr StateSection factors_section{"low-rank", save_factors, load_factors};

}  // namespace pith

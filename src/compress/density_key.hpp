// The value of the key `density`: a number, `auto`, or the range that `auto` may choose from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compress/density_control.hpp"

namespace pith {

inline constexpr std::string_view density_expected =
    "more than 0 and at most 1, or auto, or a range as 0.001..0.1";

// In 64 bits: a double, or two floats and the highest bit, which no density has.
std::uint64_t density_bits(const Spec& spec);
void set_density(Spec& spec, std::uint64_t bits);
std::uint64_t density_range(float least, float most);
// Of `auto`: the densities of AR-Topk's authors.
inline std::uint64_t usual_density_range() { return density_range(0.001F, 0.1F); }
inline constexpr std::string_view range_separator = "..";
std::string density_text(std::uint64_t bits);
// With density=auto: makes density and form what was agreed on for the next call. Before that, a
// form that is allowed, or the candidate next to the scheme's default.
void follow(Spec& spec, const DensityControl& agreed);
// The spec with which calls in a form begin, of those that elect at the candidate next to the
// scheme's default.
Spec beginning_in(Spec spec, Form form);

}  // namespace pith

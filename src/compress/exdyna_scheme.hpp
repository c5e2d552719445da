// The keys of ExDyna and MiCRO.
#pragma once

#include "compress/spec.hpp"

namespace pith {

enum class Rule : std::uint8_t { quantile, intended, released };
enum class Partition : std::uint8_t { prefix, neighbour, slices };  // slices: MiCRO's

inline Rule rule_of(const Spec& spec) { return static_cast<Rule>(spec.choices[0]); }
inline Partition partition_of(const Spec& spec) { return static_cast<Partition>(spec.choices[1]); }

extern const Scheme micro_scheme;

}  // namespace pith

// The keys of top-k.
#pragma once

#include "compress/spec.hpp"

namespace pith {

// How lists of pairs are exchanged.
enum class Exchange : std::uint8_t { automatic, direct, ring, recursive_doubling, split };

inline Exchange exchange_of(const Spec& spec) { return static_cast<Exchange>(spec.choices[0]); }

}  // namespace pith

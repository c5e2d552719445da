// The keys of CHOCO-SGD.
#pragma once

#include "compress/gossip/graph.hpp"
#include "compress/spec.hpp"

namespace pith {

inline Graph graph_of(const Spec& spec) { return static_cast<Graph>(spec.choices[0]); }
// The step towards what neighbours have.
inline double gamma_of(const Spec& spec) { return spec.numbers[0]; }

}  // namespace pith

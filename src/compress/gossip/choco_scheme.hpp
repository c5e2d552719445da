// The keys of CHOCO-SGD.
#pragma once

#include "compress/gossip/graph.hpp"
#include "compress/scheme.hpp"

namespace pith {

inline Graph graph_of(const Spec& spec) { return static_cast<Graph>(spec.choices[0]); }
// Whether the user states the edges (stated_graph.hpp).
inline bool states_graph(const Spec& spec) {
  return spec.scheme->averages_parameters && graph_of(spec) == Graph::stated;
}
// For forecasts, of rank 0; a stated graph counts as a ring.
inline int forecast_degree(const Spec& spec, int ranks) {
  const Graph graph = states_graph(spec) ? Graph::ring : graph_of(spec);
  return GossipGraph(graph, 0, ranks).degree();
}
// The step towards what neighbours have.
inline double gamma_of(const Spec& spec) { return spec.numbers[0]; }

}  // namespace pith

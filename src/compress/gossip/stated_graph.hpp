// A graph of gossip that the user states by its edges.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/error.hpp"

namespace pith {

class Compressor;
struct GossipMemories;

// Two ranks that tell each other.
struct Edge {
  int low = 0;
  int high = 0;  // above `low`
  auto operator<=>(const Edge&) const = default;
};

class StatedGraph {
 public:
  // Edge i joins the ranks from[i] and to[i]. An error if an edge joins a rank with itself or a
  // negative number, or comes twice.
  static Expected<std::shared_ptr<const StatedGraph>> of(std::span<const int> from,
                                                         std::span<const int> to);

  // In ascending order, each once.
  std::span<const Edge> edges() const { return edges_; }
  // The number of edges of every rank below `ranks`. Precondition: check() found nothing.
  std::vector<int> degrees(int ranks) const;
  // An error if an edge has a rank that does not exist, or if the graph is not connected: then
  // ranks could not meet.
  Error check(int ranks) const;
  // Not 0.
  std::uint64_t digest() const { return digest_; }

 private:
  std::vector<Edge> edges_;
  std::uint64_t digest_ = 0;
};

// An error if memories that hold something belong to other edges.
Error check_edges(const GossipMemories& known, const StatedGraph& graph);
// Between calls. Changes nothing where the spec's graph is not `stated`. An error if ranks already
// know something of each other's parameters by other edges.
Error state_graph(Compressor& compressor, std::shared_ptr<const StatedGraph> graph);

}  // namespace pith

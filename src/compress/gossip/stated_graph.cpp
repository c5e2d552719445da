#include "compress/gossip/stated_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compress/compressor.hpp"
#include "compress/gossip/choco_scheme.hpp"
#include "compress/scheme.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

std::uint64_t digest_of(std::span<const Edge> edges) {
  std::uint64_t hash = edges.size();
  for (const Edge& edge : edges) {
    hash =
        mix(mix(hash, static_cast<std::uint64_t>(edge.low)), static_cast<std::uint64_t>(edge.high));
  }
  return hash | 1;
}

Error bad_edge(const Edge& edge, std::string_view expected) {
  return {Code::invalid_argument,
          fmt::format("an edge joins {} and {}, expected {}", edge.low, edge.high, expected)};
}

}  // namespace

Expected<std::shared_ptr<const StatedGraph>> StatedGraph::of(std::span<const int> from,
                                                             std::span<const int> to) {
  StatedGraph graph;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Edge edge{std::min(from[i], to[i]), std::max(from[i], to[i])};
    if (edge.low < 0) return bad_edge(edge, "ranks of the communicator");
    if (edge.low == edge.high) return bad_edge(edge, "two different ranks");
    graph.edges_.push_back(edge);
  }
  std::ranges::sort(graph.edges_);
  const auto twice = std::ranges::adjacent_find(graph.edges_);
  if (twice != graph.edges_.end()) return bad_edge(*twice, "every edge once, in either direction");
  graph.digest_ = digest_of(graph.edges_);
  return std::make_shared<const StatedGraph>(std::move(graph));
}

std::vector<int> StatedGraph::degrees(int ranks) const {
  std::vector<int> degrees(static_cast<std::size_t>(ranks));
  for (const Edge& edge : edges_) {
    ++degrees[static_cast<std::size_t>(edge.low)];
    ++degrees[static_cast<std::size_t>(edge.high)];
  }
  return degrees;
}

// Ranks that are joined get the same root.
Error StatedGraph::check(int ranks) const {
  std::vector<int> above(static_cast<std::size_t>(ranks));
  std::iota(above.begin(), above.end(), 0);
  const auto root_of = [&](int rank) {
    while (above[static_cast<std::size_t>(rank)] != rank) {
      int& next = above[static_cast<std::size_t>(rank)];
      next = above[static_cast<std::size_t>(next)];
      rank = next;
    }
    return rank;
  };
  for (const Edge& edge : edges_) {
    if (edge.high >= ranks) return bad_edge(edge, fmt::format("ranks below {}", ranks));
    above[static_cast<std::size_t>(root_of(edge.high))] = root_of(edge.low);
  }
  for (int rank = 1; rank < ranks; ++rank) {
    if (root_of(rank) == root_of(0)) continue;
    return {Code::invalid_argument,
            fmt::format("no path of the graph's edges joins ranks 0 and {}, expected one between "
                        "any two ranks",
                        rank)};
  }
  return {};
}

Error check_edges(const GossipMemories& known, const StatedGraph& graph) {
  if (known.own.empty() || known.edges == graph.digest()) return {};
  return {Code::invalid_usage,
          "ranks know of each other's parameters by another graph, expected the same edges, or a "
          "reset compressor"};
}

Error state_graph(Compressor& compressor, std::shared_ptr<const StatedGraph> graph) {
  if (!states_graph(compressor.spec())) return {};
  GossipMemories& known = compressor.gossip;
  if (Error error = check_edges(known, *graph)) return error;
  known.edges = graph->digest();
  known.graph = std::move(graph);
  return {};
}

}  // namespace pith

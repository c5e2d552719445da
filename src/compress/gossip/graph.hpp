// Who tells whom in a gossip, and how much a rank takes of what it is told. The matrix of these
// weights is symmetric, and its rows sum to 1 with what a rank keeps of its own, so the mean of all
// ranks never changes.
//
// In a ring, in a torus and among all, every rank has as many neighbours as the others, and all
// weights of a row are 1 / (degree + 1). In a stated graph ranks i and j have the weight
// 1 / (max(degree i, degree j) + 1) for each other [Metropolis; Xiao, Boyd, Kim 2007], which is the
// same where degrees are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compress/gossip/stated_graph.hpp"

namespace pith {

enum class Graph : std::uint8_t { ring, torus, complete, stated };

class GossipGraph {
 public:
  // Of the graphs that are not stated.
  GossipGraph(Graph graph, int rank, int ranks) {
    if (graph == Graph::complete) {
      for (int k = 1; k < ranks; ++k) neighbours_.push_back((rank + k) % ranks);
    } else {
      const int rows = graph == Graph::torus ? rows_of(ranks) : 1;
      const int columns = ranks / rows;
      const int row = rank / columns;
      const int column = rank % columns;
      for (const int next : beside(column, columns)) neighbours_.push_back(row * columns + next);
      for (const int next : beside(row, rows)) neighbours_.push_back(next * columns + column);
    }
    parts_.assign(neighbours_.size(), static_cast<int>(neighbours_.size()) + 1);
  }
  // Precondition: graph.check(ranks) found nothing.
  GossipGraph(const StatedGraph& graph, int rank, int ranks) {
    const std::vector<int> degrees = graph.degrees(ranks);
    const auto degree_of = [&](int r) { return degrees[static_cast<std::size_t>(r)]; };
    for (const Edge& edge : graph.edges()) {
      if (edge.low != rank && edge.high != rank) continue;
      neighbours_.push_back(edge.low == rank ? edge.high : edge.low);
      parts_.push_back(std::max(degree_of(edge.low), degree_of(edge.high)) + 1);
    }
  }

  // Distinct neighbours.
  int degree() const { return static_cast<int>(neighbours_.size()); }
  // The k-th of them; of the complete graph by distance.
  int operator[](int k) const { return neighbours_[static_cast<std::size_t>(k)]; }
  // One over the weight of the k-th neighbour.
  int parts(int k) const { return parts_[static_cast<std::size_t>(k)]; }
  // The sum of their weights.
  float weight() const {
    double sum = 0;
    for (const int parts : parts_) sum += 1 / double(parts);
    return static_cast<float>(sum);
  }

 private:
  // A prime number of ranks is a ring.
  static int rows_of(int ranks) {
    int rows = 1;
    for (int r = 1; r * r <= ranks; ++r) {
      if (ranks % r == 0) rows = r;
    }
    return rows;
  }
  // Neighbours on a circle of so many: of two the next one is the previous one.
  static std::vector<int> beside(int at, int size) {
    if (size == 1) return {};
    const int next = (at + 1) % size;
    const int previous = (at + size - 1) % size;
    return next == previous ? std::vector{next} : std::vector{next, previous};
  }

  std::vector<int> neighbours_;
  std::vector<int> parts_;
};

}  // namespace pith

// Who tells whom in a gossip: the ranks of a ring, of a torus, or all. Every rank has as many
// neighbours as the others, so that the weights 1 / (degree + 1) of a rank's own vector and of each
// neighbour's make a doubly stochastic matrix, and the mean of all ranks never changes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pith {

enum class Graph : std::uint8_t { ring, torus, complete };

class GossipGraph {
 public:
  GossipGraph(Graph graph, int rank, int ranks)
      : rank_(rank), rows_(graph == Graph::torus ? rows_of(ranks) : 1), columns_(ranks / rows_) {
    if (graph == Graph::complete) others_ = ranks - 1;
  }

  // Distinct neighbours.
  int degree() const { return others_ > 0 ? others_ : along(columns_) + along(rows_); }
  // The k-th of them; of the complete graph by distance.
  int operator[](int k) const {
    if (others_ > 0) return (rank_ + k + 1) % (others_ + 1);
    const int row = rank_ / columns_;
    const int column = rank_ % columns_;
    const int across = k - along(columns_);
    if (across < 0) return row * columns_ + beside(column, columns_, k);
    return beside(row, rows_, across) * columns_ + column;
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
  static int along(int size) { return std::min(size - 1, 2); }
  static int beside(int at, int size, int k) { return (at + (k == 0 ? 1 : size - 1)) % size; }

  int rank_;
  int rows_;
  int columns_;
  int others_ = 0;  // of the complete graph
};

}  // namespace pith

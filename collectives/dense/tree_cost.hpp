// Time that trees take on ideal links, for the cost functions of tree algorithms.
#pragma once

#include <algorithm>
#include <array>

#include "collectives/algorithm.hpp"
#include "collectives/patterns.hpp"

namespace pith {

using TreeOf = TreeNode (*)(int rank, int ranks);

// When a rank has the sum of its subtree. Its children's vectors come through one port.
inline double sum_time(TreeOf tree, int rank, int ranks, const LinkCost& link, double bytes) {
  std::array<double, 2> arrivals{};
  std::size_t children = 0;
  for (const int child : tree(rank, ranks).children) {
    if (child < 0) continue;
    arrivals[children++] = sum_time(tree, child, ranks, link, bytes) + link.alpha;
  }
  if (children == 0) return 0;
  const double wire = link.beta * bytes;
  const double first = std::min(arrivals[0], arrivals[children - 1]);
  const double last = std::max(arrivals[0], arrivals[children - 1]);
  const double port = children == 2 ? std::max(last, first + wire) : first;
  return port + wire + static_cast<double>(children) * link.gamma * bytes;
}

// The time from when a rank has the result until all ranks of its subtree have it.
inline double spread_time(TreeOf tree, int rank, int ranks, const LinkCost& link, double bytes) {
  double port = 0;
  double last = 0;
  for (const int child : tree(rank, ranks).children) {
    if (child < 0) continue;
    port += link.beta * bytes;
    last = std::max(last, port + link.alpha + spread_time(tree, child, ranks, link, bytes));
  }
  return last;
}

}  // namespace pith

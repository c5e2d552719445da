// Cost of a call of gTop-k, on ideal full-duplex links, without selecting and adding up.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/patterns.hpp"
#include "collectives/sparse/topk_cost.hpp"

namespace pith {

// When a rank has merged the lists of its subtree. Those of its children come through one port, in
// the order in which they are sent.
inline double gtopk_merged_time(int rank, int ranks, double wire, double alpha) {
  std::vector<double> arrivals;
  for (int child = 1; child < binomial_bit(rank, ranks) && rank + child < ranks; child *= 2) {
    arrivals.push_back(gtopk_merged_time(rank + child, ranks, wire, alpha) + alpha);
  }
  std::sort(arrivals.begin(), arrivals.end());
  double port = 0;
  for (const double arrival : arrivals) port = std::max(port, arrival) + wire;
  return port;
}

// From a rank's having the result until all of its subtree have it.
inline double gtopk_told_time(int rank, int ranks, double wire, double alpha) {
  double last = 0;
  int turn = 0;
  for (int child = binomial_bit(rank, ranks) / 2; child > 0; child /= 2) {
    if (rank + child >= ranks) continue;
    const double below = gtopk_told_time(rank + child, ranks, wire, alpha);
    last = std::max(last, ++turn * wire + alpha + below);
  }
  return last;
}

// For P a power of two 2 log2 P (alpha + k (w + v) beta), w bits an index and v bits a value.
inline double gtopk_cost(const TopkShape& shape, const LinkCost& link) {
  if (shape.ranks == 1) return 0;
  const double wire = list_bytes(shape.pairs(), shape.elements(), shape.value_bits) * link.beta;
  return gtopk_merged_time(0, shape.ranks, wire, link.alpha) +
         gtopk_told_time(0, shape.ranks, wire, link.alpha);
}

}  // namespace pith

// What AR-Topk costs, on ideal links: seconds, without selection and reduction.
//
// P ranks, L = log2 P, k pairs of w bits an index and v bits a value, alpha a message and beta a
// byte. The first three are the paper's (Table I, Eq. 4) with w and v instead of 32 bits each.
#pragma once

#include <algorithm>
#include <cmath>

namespace pith {

struct SparseShape {
  int ranks = 1;
  double pairs = 0;
  double index_bits = 32;
  double value_bits = 32;
  int parcels = 1;  // messages of indices, one behind the other

  double levels() const { return std::log2(double(ranks)); }
  double index_bytes() const { return pairs * index_bits / 8; }
  double value_bytes() const { return pairs * value_bits / 8; }
  // The part of a vector that a rank has to hear from others, or to tell them.
  double others() const { return (ranks - 1) / double(ranks); }
};

// Allgather of all ranks' pairs: L alpha + (P-1) k (w + v) beta.
inline double topk_allgather_cost(const SparseShape& shape, double alpha, double beta) {
  return shape.levels() * alpha +
         (shape.ranks - 1) * (shape.index_bytes() + shape.value_bytes()) * beta;
}

// Binomial broadcast of the indices, then a ring: (2 (P-1) + L) alpha + (2 (P-1)/P v + L w) k beta.
inline double ar_topk_ring_cost(const SparseShape& shape, double alpha, double beta) {
  return (2 * (shape.ranks - 1) + shape.levels()) * alpha +
         (2 * shape.others() * shape.value_bytes() + shape.levels() * shape.index_bytes()) * beta;
}

// The same with a tree: 3 L alpha + (2 v + w) L k beta.
inline double ar_topk_tree_cost(const SparseShape& shape, double alpha, double beta) {
  return shape.levels() * (3 * alpha + (2 * shape.value_bytes() + shape.index_bytes()) * beta);
}

// Ours, reduction=direct. The indices of one parcel go down a binomial tree, ceil(L) hops; those of
// S parcels along a chain, P-2+S messages behind each other, each a part of the indices: what a
// port carries does not grow with P. Sums: 2 alpha + 2 (P-1)/P v k beta, all but the last parcel's
// while indices still travel. election=variance: one alpha more, for P-1 tiny messages at once.
inline double ar_topk_cost(const SparseShape& shape, double alpha, double beta) {
  if (shape.ranks == 1) return 0;
  const double message = alpha + shape.index_bytes() / shape.parcels * beta;
  const double hops =
      shape.parcels == 1 ? std::ceil(shape.levels()) : shape.ranks - 2 + shape.parcels;
  return hops * message + 2 * alpha + 2 * shape.others() * shape.value_bytes() * beta;
}

}  // namespace pith

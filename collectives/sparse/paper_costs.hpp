// AR-Topk's costs in the terms of its paper [Tyagi, Swany: IEEE BigData 2023, Table I and Eq. 4]:
// indices by a binomial broadcast, then an allreduce of values by a ring or by a tree. Generalised
// to w bits an index and v bits a value; the paper has 32 of each. Without selection and reduction.
//
// For comparison: with them the paper's choices come out. Nothing overlaps here; what this
// library's exchange takes, which streams, is in ar_topk_cost.hpp. Where messages dominate there is
// nothing to overlap, and they describe reduction=ring and reduction=tree. The third of the paper's
// forms, the allgather, is topk_allgather_cost there.
#pragma once

#include "collectives/sparse/ar_topk_cost.hpp"

namespace pith {

// L alpha + L k w beta.
inline double paper_broadcast_cost(const SparseShape& shape, double alpha, double beta) {
  return shape.levels() * (alpha + shape.index_bytes() * beta);
}

// Eq. 4a: (2 (P-1) + L) alpha + k (2 (P-1)/P v + L w) beta.
inline double paper_art_ring_cost(const SparseShape& shape, double alpha, double beta) {
  return paper_broadcast_cost(shape, alpha, beta) + 2 * (shape.ranks - 1) * alpha +
         2 * shape.others() * shape.value_bytes() * beta;
}

// Eq. 4b: 3 L alpha + k L (2 v + w) beta.
inline double paper_art_tree_cost(const SparseShape& shape, double alpha, double beta) {
  return paper_broadcast_cost(shape, alpha, beta) +
         2 * shape.levels() * (alpha + shape.value_bytes() * beta);
}

}  // namespace pith

// Exact sums of sparse vectors: in, each rank's lists of pairs; out, the sums of all ranks' lists.
// They pay where indices overlap, since sums are then shorter than the lists. All vectors share
// messages.
// Costs: topk_cost.hpp.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/lists/list_line.hpp"

namespace pith {

struct SparseSum {
  // In: `list` is this rank's, and `memory` has as many lists as the function needs. Out: `list` is
  // the sum in float32, with the same bits on every rank; it lies in `memory`.
  std::span<ListVector> vectors;
  DType type = DType::f32;         // of this rank's values
  std::uint32_t* flags = nullptr;  // ListHead::flags; in: this rank's, out: all ranks'
  std::uint16_t lane = 0;          // of the indices; the values use the next one
  // Elements that one message covers at most, since its length and its number of pairs have 32
  // bits. Tests lower it.
  std::size_t message_elements = std::size_t{1} << 28;
};

constexpr std::size_t lists_for_doubling = 3;
constexpr std::size_t lists_for_split(std::size_t ranks) { return ranks + 1; }

// Recursive doubling [SparCML, Renggli et al. 2019: SSAR_Recursive_double]: partners exchange their
// sums so far and both add them up, lower ranks first. Only for float32, since every hop rounds its
// sums. Ranks beyond the largest power of two give their lists to a partner and get the sums from
// it.
// Cost, for a power of two: log2 P alpha and beta times the sum of U(2^i), the size of the union of
// 2^i lists, for i < log2 P; for others see topk_cost.hpp.
Task<Error> sparse_sum_doubling(Call& call, SparseSum args, Traffic& traffic);

// Split and allgather [SparCML: SSAR_Split_allgather]: every rank gets all ranks' pairs of its
// share of the line of vectors, adds them up in rank order, and sends the sums to all, in float32.
// Cost: 2 alpha and ((P-1)/P) (k + U(P)) beta.
Task<Error> sparse_sum_split(Call& call, SparseSum args, Traffic& traffic);

}  // namespace pith

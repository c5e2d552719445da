// Exact sums of sparse vectors: every rank's lists of pairs in, the sums of all of them out. For
// lists whose indices overlap, where passing on sums moves less than passing on lists. All vectors
// share messages. Costs: topk_cost.hpp.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/lists/list_line.hpp"

namespace pith {

struct SparseSum {
  // In: each one's list, this rank's, and so many lists of memory as the way has. Out: as the list
  // the sum, float32, the same bits on every rank; it lies in that memory.
  std::span<ListVector> vectors;
  DType type = DType::f32;         // of this rank's values
  std::uint32_t* flags = nullptr;  // ListHead's; in: this rank's, out: of any rank
  std::uint16_t lane = 0;          // names the messages, with the lane behind it
  // A message's length, and the number of pairs in it, have 32 bits: what lies in a longer range
  // goes as several. Tests shrink it.
  std::size_t message_elements = std::size_t{1} << 28;
};

constexpr std::size_t lists_for_doubling = 3;
constexpr std::size_t lists_for_split(std::size_t ranks) { return ranks + 1; }

// Recursive doubling [SparCML, Renggli et al. 2019: SSAR_Recursive_double]: partners exchange what
// they have and both add it up, lower ranks first. float32 only, for every hop adds. Ranks beyond
// the power of two give their lists to a partner and get the sums. Cost, for a power of two:
// log2 P alpha and beta times the sum of U(2^i), the union of so many lists, for i < log2 P; for
// others see topk_cost.hpp.
Task<Error> sparse_sum_doubling(Call& call, SparseSum args, Traffic& traffic);

// Split and allgather [SparCML: SSAR_Split_allgather]: every rank gets all ranks' pairs of its
// share of the line of vectors, adds them up in rank order, and sends the sums to all, in float32.
// Cost: 2 alpha and ((P-1)/P) (k + U(P)) beta.
Task<Error> sparse_sum_split(Call& call, SparseSum args, Traffic& traffic);

}  // namespace pith

// Exact sums of sparse vectors: every rank's list of pairs in, the sum of all of them out. For
// lists whose indices overlap, where passing on sums moves less than passing on lists.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

struct SparseSum {
  SparseList own;  // one run, values of `type`
  DType type = DType::f32;
  std::size_t count = 0;           // of the vector
  std::span<PairList> memory;      // of this vector, so many as each way has; the sum lies there
  SparseList* sum = nullptr;       // out: float32, the same bits on every rank
  std::uint32_t* flags = nullptr;  // ListHead's; in: this rank's, out: of any rank
  std::uint16_t lane = 0;          // names the messages, with the lane behind it
  std::uint32_t step = 0;  // names the messages; the vectors of one call have different ones
  // A message's length, and the number of pairs in it, have 32 bits: what lies in a longer range
  // goes as several. Tests shrink it.
  std::size_t message_elements = std::size_t{1} << 28;
};

constexpr std::size_t lists_for_doubling = 3;
constexpr std::size_t lists_for_split(std::size_t ranks) { return 2 * ranks + 1; }

// All lists of a range added up in this order, in float32: one run of `sum`. Local.
void add_lists(Call& call, std::span<const SparseList> lists, DType type, Range range,
               PairList& sum);

// Recursive doubling [SparCML, Renggli et al. 2019: SSAR_Recursive_double]: partners exchange what
// they have and both add it up, lower ranks first. float32 only, for every hop adds. Ranks beyond
// the power of two give their list to a partner and get the sum. Cost: ceil(log2 P) alpha and
// beta times the sum of U(2^i), the union of so many lists, for i < log2 P.
Task<Error> sparse_sum_doubling(Call& call, SparseSum args, Traffic& traffic);

// Split and allgather [SparCML: SSAR_Split_allgather]: every rank gets all ranks' pairs of its
// share of the indices, adds them up in rank order, and sends the sums to all, in float32. Cost:
// 2 alpha and ((P-1)/P) (k + U(P)) beta.
Task<Error> sparse_sum_split(Call& call, SparseSum args, Traffic& traffic);

}  // namespace pith

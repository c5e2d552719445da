// Which sums of a rank's share are kept, and what becomes of the others.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "collectives/lists/split_sum.hpp"

namespace pith {

// Where the sums of one share lie, as magnitudes' bits (sign cleared, at most those of the largest
// finite number): by_place[j] is the place(j, k)-th largest, or the least if there are fewer.
// Places go from 1 to k, the number to be kept of all shares, each about as much larger as the one
// before.
struct ShareSummary {
  static constexpr std::size_t places = 64;
  std::uint64_t count = 0;
  std::array<std::uint32_t, places> by_place{};

  static std::size_t place(std::size_t j, std::size_t k);
};
// Rearranges the magnitudes.
ShareSummary summary_of(std::span<std::uint32_t> magnitudes, std::size_t k);
// The largest magnitude that about k sums of all shares have at least; zero if there are no more.
// Between two places sums are taken to lie evenly, which is true within some 1 % of k.
std::uint32_t threshold_of(std::span<const ShareSummary> shares, std::size_t k);

// ListVector::memory of these sums is followed by one more list.
constexpr std::size_t lists_for_kept_sums(std::size_t ranks) { return lists_for_split(ranks) + 1; }

// Reduces the sums of this rank's share to the largest ones, in the spec's type.
Task<Error> keep_largest_sums(Call& call, const SparseCall& args, SplitSum& split);

// When the call has succeeded: what a tensor has given to sums that the result does not have
// returns to its accumulator, and what this rank's 16-bit sums have lost goes there.
void keep_the_rest(Call& call, const CompressedTensor& tensor, const SplitSum& split,
                   const ListVector& result);

}  // namespace pith

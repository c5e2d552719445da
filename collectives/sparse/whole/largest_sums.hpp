// Of the sums of lists, in float32: the largest, those sums in a narrower type, and what becomes of
// pairs that a result has or does not have.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "collectives/call.hpp"
#include "compress/compressor.hpp"

namespace pith {

// A magnitude that compares like its bits; a sum beyond float32 counts as the largest number.
std::uint32_t magnitude_bits(float value);

// What is larger is kept, and so many of those that are equal, the first ones.
struct Cut {
  std::uint32_t magnitude = 0;
  std::size_t equal = std::numeric_limits<std::size_t>::max();

  bool keeps(float value);
};

// Keeps so many, or all if there are no more. Rearranges the magnitudes.
Cut cut_behind(std::span<std::uint32_t> magnitudes, std::size_t keep);

// Reduces a list of one run to what the cut keeps. What it does not keep becomes a run of
// `dropped`, if that is not null.
void reduce_to(Cut& cut, PairList& sums, PairList* dropped);

// Rounds a list of one run to a narrower type. What that loses becomes a run of `losses`.
void narrow(Call& call, PairList& sums, DType type, PairList& losses);

// When the call has succeeded: adds those pairs of a list to the accumulator whose indices the
// result has, or those that it does not have. Indices of both ascend. May throw bad_alloc.
enum class Among : std::uint8_t { result, others };
void keep_pairs(Call& call, Compressor& compressor, const SparseList& list, DType type, Among where,
                const SparseList& result);

}  // namespace pith

// What a low-rank scheme keeps from call to call, and the arithmetic on its factors that all ranks
// repeat with the same bits.
#pragma once

#include <memory>
#include <vector>

#include "compress/low_rank/layout.hpp"
#include "core/compute.hpp"

namespace pith {

struct LowRankState {
  // From pithCompressorSetShape, a saved state or the first call on.
  std::shared_ptr<const LowRankLayout> layout;
  // The right factors of the last call's result, with which the next one begins, as they lie in the
  // second message; empty before the first call.
  std::vector<float> right;
};

// The first call's right factors: normal numbers, nearly, that `seed` alone determines.
void draw_right(const LowRankLayout& layout, std::uint64_t seed, float* right);
// Prepares right factors for the next call. Only their directions count: each vector is scaled by a
// power of two to magnitudes below 1, so that products do not leave float32's range, and one that
// is zero is drawn anew, since from it no direction could ever be found.
void renew_right(const LowRankLayout& layout, std::uint64_t seed, std::uint64_t step, float* right);
// Makes the columns of a left factor orthonormal; one that the others span already becomes zero.
// `room`: as many numbers as the factor has. The bits depend on nothing but the factor's.
void orthonormalise(std::size_t rows, std::size_t rank, float* left, double* room);

// What a call has taken out of an accumulator: left times own right factors, and elements. Kept
// until known to be delivered.
struct LowRankTaken {
  std::shared_ptr<const LowRankLayout> layout;  // null: nothing was taken
  std::vector<float> left;                      // as in the first message
  std::vector<float> right;                     // as in the second message
  double squares = 0;                           // of what was taken
};

// Adds `factor` times what was taken to the accumulator. `reachable`: memory that the accumulator's
// kernels and the host reach.
void add_taken(Compute& vectors, Compute& reachable, const LowRankTaken& taken, float factor,
               float* accumulator);

}  // namespace pith

// What reduce.cpp hands to the SIMD sources: one description of a call, one entry per type family.
#pragma once

#include <cstddef>

#include "core/dtype.hpp"
#include "kernels/reduce.hpp"

namespace pith::kernels {

struct Combine {
  std::byte* out;
  std::byte* second_out;  // or null
  const std::byte* a;
  const std::byte* b;
  std::size_t count;
  DType type;
  Op op;  // never avg
  Stores stores = Stores::cached;
  float divisor = 0;  // not 0: out[i] = a[i] / divisor in place of op; floats only
};

// By the scalar twins: for CPUs without any SIMD target, where Highway has vectors of one lane.
void combine_scalar(const Combine& call);

void combine_integers(const Combine& call);
void combine_floats(const Combine& call);
void combine_narrow_floats(const Combine& call);

}  // namespace pith::kernels

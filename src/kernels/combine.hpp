// The interface between reduce.cpp and the SIMD sources: a description of a call, and an entry
// point for each type family.
#pragma once

#include <cstddef>

#include "core/dtype.hpp"
#include "kernels/reduce.hpp"

namespace pith::kernels {

struct Combine {
  std::byte* out;
  std::byte* second_out;  // may be null
  const std::byte* a;
  const std::byte* b;
  std::size_t count;
  DType type;
  Op op;  // never avg
  Stores stores = Stores::cached;
  float divisor = 0;  // not 0: out[i] = a[i] / divisor instead of op; floats only
};

// Uses the scalar twins: for CPUs without a SIMD target, where Highway's vectors have one lane.
void combine_scalar(const Combine& call);

void combine_integers(const Combine& call);
void combine_floats(const Combine& call);
void multiply_complex(const Combine& call);
void combine_narrow_floats(const Combine& call);

}  // namespace pith::kernels

// The kernel of an election at random.
#pragma once

#include "core/sparse_kernel_args.hpp"

namespace pith {

// Draws elements without bias: x goes to the list with the probability p = min(1, |x| / sure), as
// x / p, in order; x minus what goes stays in the accumulator. All elements are finite. The draw
// of an element depends on the key and its index alone, in steps of 2^-24.
struct DrawKernel {
  struct Args {
    float* accumulator;
    std::size_t count;
    float sure;  // magnitude from which on elements are certain to be drawn, more than zero
    std::uint64_t key;
    std::uint32_t first;     // index of the first element
    std::uint32_t* indices;  // room for `count` of both
    float* values;
    PassResult* result;  // squares: of the elements before the draw
  };
  static std::size_t work_bytes(const Args& args) { return 8 * args.count; }
};

}  // namespace pith

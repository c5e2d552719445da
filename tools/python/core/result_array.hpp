// The array in which a call leaves its result: the caller's, or a new one like the input.
//
// All functions need the GIL.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "array_argument.hpp"
#include "nanobind/nanobind.h"

namespace pith::python {

using Shape = std::vector<std::int64_t>;

struct ResultArray {
  nb::object object;
  ArrayArgument array;
};

// `out`: the caller's, or None for a new array of the kind of `x`. Raises unless it has the type of
// `input`, lies in the same kind of memory, and has the shape. The last three are as those of an
// ArrayArgument.
ResultArray result_array(nb::handle x, const ArrayArgument& input, nb::handle out,
                         std::span<const std::int64_t> shape, nb::handle dtype,
                         std::uintptr_t stream, bool reals);
// Raises unless the two are apart, or the first lies `offset` bytes into the second as in-place
// calls have it.
void check_overlap(const ArrayArgument& part, const ArrayArgument& whole, std::size_t offset);

// The shape of as many arrays as there are ranks, one per row.
Shape stacked(std::span<const std::int64_t> shape, int ranks);
// The shape of one of as many parts as there are ranks. Raises if the first axis cannot be cut.
Shape cut(const char* argument, std::span<const std::int64_t> shape, int ranks);

}  // namespace pith::python

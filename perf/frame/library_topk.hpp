// What the library's own selector elects of a vector, apart from any call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.hpp"

namespace pith_perf {

// By rising index; the values as they travel.
struct Pairs {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

// Takes the k largest magnitudes out of `sums`, of equal ones those of lower index, and leaves the
// residual there: zero, or what rounding to `values` has lost.
Pairs take_topk(std::span<float> sums, std::size_t k, pith::DType values);

}  // namespace pith_perf

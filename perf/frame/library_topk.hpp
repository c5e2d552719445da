// Elects elements of a vector with the library's own selector, outside any call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.hpp"

namespace pith_perf {

// By ascending index; values as sent.
struct Pairs {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

// Removes the k largest magnitudes from `sums`, ties by lower index, and leaves the residual there:
// zero, or what rounding to `values` lost.
Pairs take_topk(std::span<float> sums, std::size_t k, pith::DType values);

}  // namespace pith_perf

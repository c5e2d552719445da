// Cost of a call of CHOCO-SGD, on ideal full-duplex links, without reading parameters.
#pragma once

#include "collectives/algorithm.hpp"
#include "collectives/sparse/topk_cost.hpp"

namespace pith {

// Seconds: values follow their indices to every neighbour.
inline double choco_cost(const TopkShape& shape, int degree, const LinkCost& link) {
  if (degree == 0) return 0;
  const double bytes = list_bytes(shape.pairs(), shape.elements(), shape.value_bits);
  return link.alpha + (2 * degree - 1) * link.message + degree * bytes * link.beta;
}

}  // namespace pith

// What a compressed call costs, for choices: rough, so that it can be had for any density, and the
// links' part apart from the cores'. The exchanges' exact costs are in collectives/sparse.
#pragma once

#include <cstddef>

#include "collectives/algorithm.hpp"
#include "compress/spec.hpp"

namespace pith {

struct CallCost {
  double messages = 0;  // one after another
  double bytes = 0;     // through a rank's link
  double work_s = 0;    // of a core

  double seconds(double alpha, double beta) const {
    return messages * alpha + bytes * beta + work_s;
  }
};

// Of a vector of `count` elements, with this density in place of the spec's, unless it has a form.
CallCost compressed_cost(const Spec& spec, double density, std::size_t count, int ranks);
// Of the same call made dense, residual included.
CallCost dense_cost(std::size_t count, int ranks);
// Of either, with the spec's density and form.
inline CallCost way_cost(const Spec& spec, bool dense, std::size_t count, int ranks) {
  return dense ? dense_cost(count, ranks) : compressed_cost(spec, spec.density, count, ranks);
}

}  // namespace pith

// Cost of an allreduce of rows that a sketch elects, on ideal full-duplex links.
#pragma once

#include "collectives/sparse/random_k_cost.hpp"
#include "compress/low_rank/elected_rows.hpp"

namespace pith {

// Seconds: 4 alpha + 2 (P-1)/P m beta, m bytes of both messages, the sketches and the values.
inline double arc_topk_cost(const RowCounts& rows, std::size_t value_bytes, int ranks,
                            const LinkCost& link) {
  const double sketches =
      rows.sketch == 0 ? 0 : random_k_cost(rows.sketch * sizeof(float), ranks, link);
  return sketches + random_k_cost(rows.elements * value_bytes, ranks, link);
}

}  // namespace pith

// Writes the product of two factors as a part of a result.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/lists/result_writer.hpp"

namespace pith {

// A matrix of the result. Factors are where the queue's kernels are.
struct ResultMatrix {
  std::size_t begin = 0;  // in the vector
  FactorShape shape = {};
  const float* left = nullptr;
  const float* right = nullptr;
};

// The rows that are worked on at once: they stay in the cache, and those of wide matrices are
// enough for the kernels' registers. On a device all, unless the host awaits them.
std::size_t rows_at_once(const VectorQueue& queue, std::size_t columns, bool awaited = false);

// With a yield after every few rows. A product of rank 0 is zero.
Task<Error> put_product(Call& call, const VectorQueue& queue, const CompressedTensor& tensor,
                        ResultMatrix matrix, ResultWriter& writer);

}  // namespace pith

// Writes the result of a compressed call, dense or as pairs, piece by piece in rising order.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

class ResultWriter {
 public:
  ResultWriter(Call& call, const CompressedTensor& tensor)
      : call_(call),
        tensor_(tensor),
        divisor_(tensor.average ? static_cast<float>(call.size()) : 1.0f) {}

  // The sums at indices that lie in the range; the rest of the range is zero.
  void put(Range range, const SparseList& sums, DType type);
  // The same for a range that another writer has put `before` pairs in, where the result is dense:
  // sums at other indices.
  void add(std::size_t before, const SparseList& sums, DType type);
  // Every element becomes NaN: somebody's gradient was not finite.
  void put_nan();
  // After the last piece.
  Error finish();
  // Pairs put so far.
  std::size_t count() const { return count_; }

 private:
  Call& call_;
  const CompressedTensor& tensor_;
  float divisor_;
  std::size_t count_ = 0;
};

}  // namespace pith

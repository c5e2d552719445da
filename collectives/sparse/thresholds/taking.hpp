// Takes elements out of accumulators by a rule, part by part, with a yield after each; in each part
// there is room for every element.
#pragma once

#include <optional>

#include "collectives/compressed.hpp"

namespace pith {

// Which elements are taken: those of at least the threshold's magnitude, which is more than zero;
// or, with a key, those that DrawKernel draws, for which the threshold is `sure`.
struct Choice {
  float threshold = 0;
  bool adds = false;  // the gradient has not been added yet, and is; not with a key
  std::optional<std::uint64_t> key = {};
};
// The elements become runs of taken().
Task<Error> take_chosen(Call& call, const SparseCall& args, Compressor& compressor, Choice choice);

// Adds a tensor's gradient, and its magnitudes to a histogram in memory that the queue reaches.
Task<Error> add_and_count(Call& call, const SparseCall& args, const CompressedTensor& tensor,
                          MagnitudeHistogram& histogram);

// An empty histogram in such memory.
class HistogramRoom {
 public:
  explicit HistogramRoom(Call& call);
  MagnitudeHistogram& operator*() const {
    return *reinterpret_cast<MagnitudeHistogram*>(memory_.bytes().data);
  }

 private:
  Scratch memory_;
};

}  // namespace pith

// The result of a compressed call that moved every element.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/lists/result_writer.hpp"

namespace pith {

// Adds what is left of all gradients, once the fence has been reached.
inline Fence start_adding(Call& call, const SparseCall& args) {
  Fence last;
  for (const CompressedTensor& tensor : args.tensors) {
    const Fence added = tensor.compressor->start_adding(call.host_compute());
    if (tensor.count > 0) last = added;  // one of nothing is behind nothing
  }
  return last;
}
// True: some was not finite, and nothing may be delivered.
inline bool finish_adding(const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) tensor.compressor->count_added();
  return found_nonfinite(args) && !args.spec().drops_nonfinite;
}

// Sums of a range, at any address, dense or as pairs of what is not zero.
void put_all(Call& call, const CompressedTensor& tensor, ResultWriter& writer, Range range,
             const std::byte* sums, DType type);
// After the last range: statistics, and the whole accumulator counts as delivered.
void conclude_whole(const SparseCall& args, const CompressedTensor& tensor, ResultWriter& writer);
// Whether the first sum is no number: a rank had nothing finite to give, and all ranks see it.
bool is_nan(const std::byte* sums, DType type);

}  // namespace pith

// The result of a compressed call that sent every element.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/lists/result_writer.hpp"

namespace pith {

// Starts to add what has not been added of all gradients; done when the fence is reached.
inline Fence start_adding(Call& call, const SparseCall& args) {
  Fence last;
  for (const CompressedTensor& tensor : args.tensors) {
    const Fence added = tensor.compressor->start_adding(call.host_compute());
    if (tensor.count > 0) last = added;  // an empty tensor's fence says nothing
  }
  return last;
}
// True: a gradient of this rank was not finite, so that nothing may be delivered.
inline bool finish_adding(const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) tensor.compressor->count_added();
  return found_nonfinite(args) && !args.spec().drops_nonfinite;
}

// Writes the sums of a range, which may lie at any address: dense, or as pairs of those not zero.
void put_all(Call& call, const CompressedTensor& tensor, ResultWriter& writer, Range range,
             const std::byte* sums, DType type);
// After the last range: completes the statistics; the whole accumulator counts as delivered.
void conclude_whole(const SparseCall& args, const CompressedTensor& tensor, ResultWriter& writer);
// Whether the first sum is NaN: some rank has contributed nothing but NaN, and all ranks see it.
bool is_nan(const std::byte* sums, DType type);

}  // namespace pith

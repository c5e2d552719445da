// The result of a compressed call that sent every element.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

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

// Writers of the results of a call that sends every element: pairs are written in order, elements
// of a dense result in any order.
class WholeResults {
 public:
  WholeResults(Call& call, const SparseCall& args) : call_(call), args_(args) {
    writer_.emplace(call, args.tensors[0]);
  }
  WholeResults(const WholeResults&) = delete;
  WholeResults& operator=(const WholeResults&) = delete;

  // Of the tensor whose pairs are being written.
  ResultWriter& writer() { return *writer_; }
  // Earlier tensors are complete.
  void conclude_before(std::size_t end);
  // After the last element, if no rank's gradient was bad: only now values leave the accumulators.
  void finish();
  // Nothing is written any more.
  void abandon() { writer_.reset(); }

 private:
  Call& call_;
  const SparseCall& args_;
  std::size_t tensor_ = 0;  // the first that is not concluded
  std::optional<ResultWriter> writer_;
};

// Whether a tensor's result is pairs.
inline bool any_pairs(const SparseCall& args) {
  return std::ranges::any_of(args.tensors,
                             [](const CompressedTensor& one) { return one.sparse.count; });
}

}  // namespace pith

#include "collectives/lists/coded_losses.hpp"

#include "collectives/lists/list_message.hpp"

namespace pith {

namespace {

// `sent`: the same indices, with values as all ranks have read them.
void keep_losses_of(Call& call, Compressor& compressor, const SparseList& taken,
                    const SparseList& sent) {
  if (taken.count == 0) return;
  const Scratch memory(call.host_compute(), taken.count * sizeof(float));
  auto* const losses = reinterpret_cast<float*>(memory.bytes().data);
  const auto* const before = reinterpret_cast<const float*>(taken.values);
  const auto* const after = reinterpret_cast<const float*>(sent.values);
  for (std::size_t i = 0; i < taken.count; ++i) losses[i] = before[i] - after[i];
  compressor.keep_losses(call.host_compute(), {taken.indices, memory.bytes().data, taken.count});
}

SparseList skip(const SparseList& list, std::size_t pairs) {
  return {list.indices + pairs, list.values + pairs * sizeof(float), list.count - pairs};
}

// Of one tensor. Its last run went in one or several tails, each other one in a parcel of its own.
void keep_losses_of(Call& call, Compressor& compressor) {
  PairList& taken = compressor.taken();
  const auto ranks = static_cast<std::size_t>(call.size());
  const PairList& sent = compressor.received(ranks)[static_cast<std::size_t>(call.rank())];
  const std::size_t last = taken.runs() - 1;
  for (std::size_t r = 0; r < last; ++r) {
    keep_losses_of(call, compressor, taken.run(r), sent.run(run_of_parcel(r)));
  }
  SparseList left = taken.run(last);
  for (std::size_t tail = 0; left.count > 0; ++tail) {
    const SparseList part = sent.run(run_of_tail(tail));
    keep_losses_of(call, compressor, {left.indices, left.values, part.count}, part);
    left = skip(left, part.count);
  }
}

}  // namespace

void keep_list_losses(Call& call, const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) keep_losses_of(call, *tensor.compressor);
  }
}

}  // namespace pith

// Wangni's sparsification: every rank draws about k elements, each with a probability in proportion
// to its magnitude, and sends what it draws divided by that, so that the result has no bias and
// nothing waits. [Wangni et al., "Gradient sparsification for communication-efficient distributed
// optimization", NeurIPS 2018]
//
//   add, and count magnitudes > probabilities > draw > lists to all ranks
//
// Small elements all go with one magnitude, the least that is sure to be drawn.
// Cost: topk_direct_cost().
#include "collectives/sparse/thresholds/own_lists.hpp"
#include "collectives/sparse/thresholds/taking.hpp"
#include "compress/thresholds/draw_key.hpp"
#include "compress/thresholds/sure_magnitude.hpp"

namespace pith {

namespace {

Task<Error> elect_by_chance(Call& call, const SparseCall& args, std::size_t t) {
  const CompressedTensor& tensor = args.tensors[t];
  Compressor& compressor = *tensor.compressor;
  const HistogramRoom histogram(call);
  Error error = co_await add_and_count(call, args, tensor, *histogram);
  if (error) co_return error;
  const Spec& spec = args.spec();
  const double k = double(elected_of(spec.density, tensor.count));
  const Choice choice{.threshold = sure_magnitude(*histogram, k),
                      .key = draw_key(spec.seed, compressor.step, t, call.rank())};
  error = co_await take_chosen(call, args, compressor, choice);
  co_return error;
}

}  // namespace

Task<Error> allreduce_wangni(Call& call, SparseCall args) {
  return sum_own_lists(call, args, elect_by_chance);
}

}  // namespace pith

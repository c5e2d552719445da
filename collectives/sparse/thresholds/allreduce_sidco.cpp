// SIDCo: about k elements, by a threshold that a fitted law gives, with no selection.
// [Abdelmoniem et al., "An efficient statistical-based gradient compression technique for
// distributed training systems", MLSys 2021]
//
//   add, and count magnitudes > fit the law, stage by stage > select > lists to all ranks
//
// The authors read what exceeds a threshold anew for each stage. One pass that counts the
// magnitudes and sums their squares tells the sums of all stages, closely (magnitude_tail.hpp).
// Cost: topk_direct_cost().
#include "collectives/sparse/thresholds/own_lists.hpp"
#include "collectives/sparse/thresholds/taking.hpp"
#include "compress/thresholds/threshold_keys.hpp"

namespace pith {

namespace {

Task<Error> elect_by_law(Call& call, const SparseCall& args, std::size_t t) {
  const CompressedTensor& tensor = args.tensors[t];
  Compressor& compressor = *tensor.compressor;
  const HistogramRoom histogram(call);
  Error error = co_await add_and_count(call, args, tensor, *histogram);
  if (error) co_return error;
  const Spec& spec = args.spec();
  const float threshold = fitted_threshold(*histogram, tensor.count, spec.density, law_of(spec),
                                           compressor.stages.stages);
  const Choice choice{.threshold = threshold};
  error = co_await take_chosen(call, args, compressor, choice);
  if (error) co_return error;
  compressor.stages.saw(double(compressor.taken().count()),
                        double(elected_of(spec.density, tensor.count)), most_stages(spec.density));
  co_return error;
}

}  // namespace

Task<Error> allreduce_sidco(Call& call, SparseCall args) {
  return sum_own_lists(call, args, elect_by_law);
}

}  // namespace pith

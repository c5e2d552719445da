// Threshold: every rank sends its elements of at least a magnitude that the user knows.
// [Strom, "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech
// 2015]
//
//   add and select in one pass > lists to all ranks (own_lists.hpp)
//
// Cost: topk_direct_cost(), of as many pairs as there are.
#include "collectives/sparse/thresholds/own_lists.hpp"
#include "collectives/sparse/thresholds/taking.hpp"
#include "compress/thresholds/threshold_keys.hpp"

namespace pith {

namespace {

Task<Error> elect_above(Call& call, const SparseCall& args, std::size_t t) {
  return take_chosen(call, args, *args.tensors[t].compressor,
                     {.threshold = value_of(args.spec()), .adds = true});
}

}  // namespace

Task<Error> allreduce_threshold(Call& call, SparseCall args) {
  return sum_own_lists(call, args, elect_above);
}

}  // namespace pith

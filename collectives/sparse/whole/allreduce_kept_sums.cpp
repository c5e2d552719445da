// Allreduce that delivers the k largest of the sums of what ranks elect: the result is as sparse as
// one rank's list, however many ranks there are.
//
//   every rank    elects its own k largest > sends each share of the vector to its rank
//   of a share    adds up all ranks' pairs > keeps the largest sums > sends them to all ranks
//   every rank    takes back what it gave to sums that were not kept > writes the result
//
// spardl: each of P ranks keeps k/P sums of its share [Zhao et al., "SparDL", ICDE 2024, whose
// rounds of halves are one direct exchange here: a sum is cut once, when it is complete].
// ok-topk: ranks agree first on the k-th largest of all sums, by a small message to each other
// (kept_sums.hpp), and keep what is at least that [Li, Hoefler, "Near-optimal sparse allreduce",
// PPoPP 2022, whose thresholds are some calls old]. Both stand for gTop-k (allreduce_gtopk.cpp),
// whose tree moves 4 k log2 P words.
//
// A sum that is not kept returns to all ranks that gave to it, so a rank that dies has nothing of
// the others'. What 16-bit values of sums lose stays with the rank of the share.
// Cost: kept_sums_cost() in topk_cost.hpp.
#include "collectives/lists/split_sum.hpp"
#include "collectives/sparse/whole/kept_sums.hpp"
#include "collectives/sparse/whole/whole_lists.hpp"

namespace pith {

Task<Error> allreduce_kept_sums(Call& call, SparseCall args) {
  Error error = co_await elect_lists(call, args);
  if (error) co_return error;
  const auto ranks = static_cast<std::size_t>(call.size());
  const ListVectors vectors(call, args, lists_for_kept_sums(ranks));
  std::uint32_t flags = found_nonfinite(args) ? ListHead::nonfinite : 0;
  const DType type = args.spec().values;
  SplitSum split(call, {.vectors = vectors.all(), .type = type, .flags = &flags});
  error = co_await add_shares(call, split, *args.traffic);
  if (!error) error = co_await keep_largest_sums(call, args, split);
  if (!error) error = co_await tell_sums(call, split, type, *args.traffic);
  if (error) co_return error;
  if (flags != 0 && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
    co_return error;
  }
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    keep_the_rest(call, args.tensors[t], split, vectors.all()[t]);
    co_await call.turn();
  }
  put_results(call, args, vectors.all(), type);
  co_return error;
}

}  // namespace pith

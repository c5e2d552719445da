// Top-k allreduce by sums of lists, after the whole vector has been read. It pays where messages
// are expensive (recursive doubling), or where ranks elect much the same elements (both ways): see
// sparse_sum.hpp.
#include "collectives/lists/list_message.hpp"
#include "collectives/lists/sparse_sum.hpp"
#include "collectives/sparse/whole/whole_lists.hpp"
#include "compress/topk_scheme.hpp"

namespace pith {

namespace {

Task<Error> sum_all(Call& call, bool split, SparseSum sum, Traffic& traffic) {
  return split ? sparse_sum_split(call, sum, traffic) : sparse_sum_doubling(call, sum, traffic);
}

}  // namespace

Task<Error> allreduce_topk_whole(Call& call, SparseCall args) {
  const bool split = exchange_of(args.spec()) == Exchange::split;
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->stats.algorithm = split ? "topk_split" : "topk_recursive_doubling";
  }
  Error error = co_await elect_lists(call, args);
  if (error) co_return error;
  const auto ranks = static_cast<std::size_t>(call.size());
  const ListVectors vectors(call, args, split ? lists_for_split(ranks) : lists_for_doubling);
  std::uint32_t flags = found_nonfinite(args) ? ListHead::nonfinite : 0;
  const SparseSum sum{.vectors = vectors.all(), .type = args.spec().values, .flags = &flags};
  error = co_await sum_all(call, split, sum, *args.traffic);
  if (error) co_return error;
  if (flags != 0 && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    put_results(call, args, vectors.all(), DType::f32);
  }
  co_return error;
}

}  // namespace pith

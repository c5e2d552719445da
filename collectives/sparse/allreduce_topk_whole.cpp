// Top-k allreduce by sums of lists, after the whole vector has been read. It pays where messages
// are expensive (recursive doubling), or where ranks elect much the same elements (both ways): see
// sparse_sum.hpp. The lists of all tensors share messages.
#include "collectives/lists/list_message.hpp"
#include "collectives/lists/result_writer.hpp"
#include "collectives/lists/sparse_sum.hpp"
#include "collectives/sparse/selectors.hpp"
#include "compress/topk_scheme.hpp"

namespace pith {

namespace {

constexpr std::uint16_t lane = 0;

// Elects this rank's k largest of one tensor, as one run.
Task<Error> elect(Call& call, const SparseCall& args, const CompressedTensor& tensor) {
  Compressor& compressor = *tensor.compressor;
  const std::size_t k = elected_of(compressor.spec().density, tensor.count);
  compressor.taken().reserve(k);  // without room, elements in transit would be lost
  TopkSelector selector(compressor, args.queue(call), k, false);
  const std::size_t at_once = elements_at_once(args);
  Error error = co_await select_range(call, selector, {0, tensor.count}, at_once);
  if (error) co_return error;
  error = co_await finish_selecting(call, selector, at_once);
  co_return error;
}

SparseList elected(Compressor& compressor) {
  const PairList& taken = compressor.taken();
  return taken.run(taken.runs() - 1);
}

ListVector vector_of(const CompressedTensor& tensor, std::size_t lists) {
  ListVector vector;
  vector.count = tensor.count;
  if (tensor.count > 0) vector.list = elected(*tensor.compressor);
  vector.memory = std::span(tensor.compressor->received(lists)).first(lists);
  return vector;
}

Task<Error> sum_all(Call& call, bool split, SparseSum sum, Traffic& traffic) {
  return split ? sparse_sum_split(call, sum, traffic) : sparse_sum_doubling(call, sum, traffic);
}

}  // namespace

Task<Error> allreduce_topk_whole(Call& call, SparseCall args) {
  const bool split = exchange_of(args.spec()) == Exchange::split;
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->stats.algorithm = split ? "topk_split" : "topk_recursive_doubling";
    if (tensor.count == 0) continue;
    Error error = co_await elect(call, args, tensor);
    if (error) co_return error;
  }
  const auto ranks = static_cast<std::size_t>(call.size());
  const std::size_t lists = split ? lists_for_split(ranks) : lists_for_doubling;
  const Scratch memory(call.host_compute(), args.tensors.size() * sizeof(ListVector));
  const std::span<ListVector> vectors{reinterpret_cast<ListVector*>(memory.bytes().data),
                                      args.tensors.size()};
  for (std::size_t t = 0; t < vectors.size(); ++t) vectors[t] = vector_of(args.tensors[t], lists);
  std::uint32_t flags = found_nonfinite(args) ? ListHead::nonfinite : 0;
  const SparseSum sum{
      .vectors = vectors, .type = args.spec().values, .flags = &flags, .lane = lane};
  Error error = co_await sum_all(call, split, sum, *args.traffic);
  if (error) co_return error;
  if (flags != 0 && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
    co_return error;
  }
  for (std::size_t t = 0; t < vectors.size(); ++t) {
    ResultWriter writer(call, args.tensors[t]);
    if (vectors[t].count > 0) writer.put({0, vectors[t].count}, vectors[t].list, DType::f32);
    args.conclude(args.tensors[t], writer);
  }
  co_return error;
}

}  // namespace pith

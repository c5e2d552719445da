#include "collectives/sparse/whole/whole_lists.hpp"

#include "collectives/lists/result_writer.hpp"
#include "collectives/sparse/selectors.hpp"

namespace pith {

namespace {

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

}  // namespace

Task<Error> elect_lists(Call& call, SparseCall args) {
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count == 0) continue;
    Error error = co_await elect(call, args, tensor);
    if (error) co_return error;
  }
  co_return Error();
}

ListVectors::ListVectors(Call& call, const SparseCall& args, std::size_t lists)
    : memory_(call.host_compute(), args.tensors.size() * sizeof(ListVector)),
      size_(args.tensors.size()) {
  for (std::size_t t = 0; t < size_; ++t) {
    const CompressedTensor& tensor = args.tensors[t];
    ListVector vector;
    vector.count = tensor.count;
    if (tensor.count > 0) vector.list = elected(*tensor.compressor);
    vector.memory = std::span(tensor.compressor->received(lists)).first(lists);
    all()[t] = vector;
  }
}

void put_results(Call& call, const SparseCall& args, std::span<const ListVector> vectors,
                 DType type) {
  for (std::size_t t = 0; t < vectors.size(); ++t) {
    ResultWriter writer(call, args.tensors[t]);
    if (vectors[t].count > 0) writer.put({0, vectors[t].count}, vectors[t].list, type);
    args.conclude(args.tensors[t], writer);
  }
}

}  // namespace pith

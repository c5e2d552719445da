// Top-k allreduce by sums of lists, when all of the vector has been looked at. For who counts
// messages (recursive doubling), or elects much the same as the others (both): see sparse_sum.hpp.
#include "collectives/list_message.hpp"
#include "collectives/result_writer.hpp"
#include "collectives/sparse_sum.hpp"
#include "compress/topk_selector.hpp"

namespace pith {

namespace {

constexpr std::uint16_t lane = 0;

// What a rank elects of one tensor; everything is one run.
Task<Error> elect(Call& call, const SparseCall& args, const CompressedTensor& tensor) {
  Compressor& compressor = *tensor.compressor;
  const std::size_t k = elected_of(compressor.spec().density, tensor.count);
  compressor.taken().reserve(k);  // what is on its way there would be lost without
  TopkSelector selector(compressor, args.queue(call), k, false);
  Task<Error> passing = selector.passing(0, tensor.count);
  Error error = co_await std::move(passing);
  if (error) co_return error;
  Task<Error> finishing = selector.finishing();
  error = co_await std::move(finishing);
  co_return error;
}

SparseList elected(Compressor& compressor) {
  const PairList& taken = compressor.taken();
  return taken.run(taken.runs() - 1);
}

Task<Error> sum_one(Call& call, bool split, SparseSum sum, Traffic& traffic) {
  return split ? sparse_sum_split(call, sum, traffic) : sparse_sum_doubling(call, sum, traffic);
}

}  // namespace

Task<Error> allreduce_topk_whole(Call& call, SparseCall args) {
  const bool split = args.spec().exchange == Exchange::split;
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->stats.algorithm = split ? "topk_split" : "topk_recursive_doubling";
    if (tensor.count == 0) continue;
    Task<Error> electing = elect(call, args, tensor);
    Error error = co_await std::move(electing);
    if (error) co_return error;
  }
  std::uint32_t flags = found_nonfinite(args) ? ListHead::nonfinite : 0;
  const auto ranks = static_cast<std::size_t>(call.size());
  const std::size_t lists = split ? lists_for_split(ranks) : lists_for_doubling;
  const Scratch memory(call.host_compute(), args.tensors.size() * sizeof(SparseList));
  auto* sums = reinterpret_cast<SparseList*>(memory.bytes().data);
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    const CompressedTensor& tensor = args.tensors[t];
    if (tensor.count == 0) continue;
    Error error = co_await sum_one(call, split,
                                   {.own = elected(*tensor.compressor),
                                    .type = args.spec().values,
                                    .count = tensor.count,
                                    .memory = tensor.compressor->received(lists),
                                    .sum = &sums[t],
                                    .flags = &flags,
                                    .lane = lane,
                                    .step = static_cast<std::uint32_t>(t)},
                                   *args.traffic);
    if (error) co_return error;
  }
  if (flags != 0 && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
    co_return Error();
  }
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    ResultWriter writer(call, args.tensors[t]);
    if (args.tensors[t].count > 0) {
      writer.put({0, args.tensors[t].count}, sums[t], DType::f32);
    }
    args.conclude(args.tensors[t], writer);
  }
  co_return Error();
}

}  // namespace pith

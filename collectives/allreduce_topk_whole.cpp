// Top-k allreduce whose lists travel whole, when all of the vector has been looked at: round a
// ring, or as sums that grow. For who has few connections (ring), counts messages (recursive
// doubling), or elects much the same as the others (recursive doubling, split): see sparse_sum.hpp.
//
// Cost of the ring: (P-1)(alpha + k beta b) with b bytes a pair; twice the messages.
#include <array>

#include "collectives/list_message.hpp"
#include "collectives/result_writer.hpp"
#include "collectives/sparse_sum.hpp"
#include "collectives/strands.hpp"
#include "compress/topk_selector.hpp"

namespace pith {

namespace {

constexpr std::uint16_t lane = 0;

// What a rank elects of one tensor; everything is one run.
void elect(Call& call, const CompressedTensor& tensor) {
  Compressor& compressor = *tensor.compressor;
  const std::size_t k = elected_of(compressor.spec().density, tensor.count);
  compressor.taken().reserve(k);  // what is on its way there would be lost without
  TopkSelector selector(compressor, call.host_compute(), k, false);
  selector.pass(0, tensor.count);
  selector.finish();
}

SparseList elected(Compressor& compressor) {
  const PairList& taken = compressor.taken();
  return taken.run(taken.runs() - 1);
}

// One vector's way round the ring.
struct Ring {
  const CompressedTensor& tensor;
  std::span<PairList> lists;  // by rank; the own one is not used
  std::uint32_t first_step;
  std::uint32_t* flags;
  Traffic* traffic;

  Range all() const { return {0, tensor.count}; }
};

Task<Error> pass_on(Call& call, Ring ring, SparseList list, std::uint32_t step) {
  const DType type = ring.tensor.compressor->spec().values;
  const ListMessage message = write_list(call, list, ring.all(), type, *ring.flags);
  ring.traffic->sent += message.head_bytes + message.values_bytes;
  const int next = wrap(call.rank() + 1, call.size());
  co_return co_await send_lists(call, {next, lane, step}, message);
}

Task<Error> go_round(Call& call, Ring ring) {
  Compressor& compressor = *ring.tensor.compressor;
  const int previous = wrap(call.rank() - 1, call.size());
  SparseList out = elected(compressor);
  for (int d = 1; d < call.size(); ++d) {
    const std::uint32_t step = ring.first_step + static_cast<std::uint32_t>(d);
    PairList& in = ring.lists[static_cast<std::size_t>(wrap(call.rank() - d, call.size()))];
    in.begin(compressor.spec().values);
    std::array<Task<Error>, 2> strands{
        strand(call, pass_on(call, ring, out, step)),
        strand(call, receive_list(call, {previous, lane, step}, ring.all(), in, *ring.flags,
                                  *ring.traffic))};
    Error error = co_await when_all(strands);
    if (error) co_return error;
    out = in.run(0);
  }
  co_return Error();
}

// Every rank adds up all lists in rank order.
Task<Error> sum_round_ring(Call& call, const CompressedTensor& tensor, SparseSum sum,
                           Traffic& traffic) {
  Compressor& compressor = *tensor.compressor;
  const auto p = static_cast<std::size_t>(call.size());
  const Ring ring{tensor, sum.memory, sum.step * static_cast<std::uint32_t>(p), sum.flags,
                  &traffic};
  Error error = co_await go_round(call, ring);
  if (error) co_return error;
  const Scratch memory(call.host_compute(), p * sizeof(SparseList));
  auto* lists = reinterpret_cast<SparseList*>(memory.bytes().data);
  for (std::size_t r = 0; r < p; ++r) {
    const bool own = r == static_cast<std::size_t>(call.rank());
    lists[r] = own ? elected(compressor) : sum.memory[r].run(0);
  }
  add_lists(call, {lists, p}, compressor.spec().values, {0, tensor.count}, sum.memory[p]);
  *sum.sum = sum.memory[p].run(0);
  co_return error;
}

Task<Error> sum_one(Call& call, const CompressedTensor& tensor, SparseSum sum, Traffic& traffic) {
  const Exchange exchange = tensor.compressor->spec().exchange;
  if (exchange == Exchange::split) return sparse_sum_split(call, sum, traffic);
  // Sums that are rounded at every hop would lose what no residual keeps.
  const bool exact = tensor.compressor->spec().values == DType::f32;
  if (exchange == Exchange::recursive_doubling && exact) {
    return sparse_sum_doubling(call, sum, traffic);
  }
  return sum_round_ring(call, tensor, sum, traffic);
}

}  // namespace

Task<Error> allreduce_topk_whole(Call& call, SparseCall args) {
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) elect(call, tensor);
  }
  std::uint32_t flags = found_nonfinite(args) ? ListHead::nonfinite : 0;
  const std::size_t lists = SparseSum::lists_for(static_cast<std::size_t>(call.size()));
  const Scratch memory(call.host_compute(), args.tensors.size() * sizeof(SparseList));
  auto* sums = reinterpret_cast<SparseList*>(memory.bytes().data);
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    const CompressedTensor& tensor = args.tensors[t];
    if (tensor.count == 0) continue;
    Error error = co_await sum_one(call, tensor,
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

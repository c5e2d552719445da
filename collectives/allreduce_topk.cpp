// Top-k allreduce by allgather: every rank elects its own k largest magnitudes, all ranks get all
// lists and add them up in rank order.
//
//   parcel:     0        1        2            tail
//   rank r   select > select > select ...     the rest of the k
//               \ send   \ send   \ send        \ send             to every other rank
//   others       decode   decode   decode         decode > add up > write
//
// Pairs leave while later ones are still being looked for: see compress/topk_selector.hpp. Where
// one parcel holds everything, the tail is all there is. Cost: (parcels + 1) alpha + (P-1) k beta b
// with b bytes a pair, about 3; twice the messages, for values travel behind their indices. The
// error-feedback scheme is that of [Aji, Heafield 2017; Lin et al. 2018], its exact one-pass
// selection ours.
#include <array>

#include "collectives/list_adder.hpp"
#include "collectives/list_message.hpp"
#include "collectives/result_writer.hpp"
#include "collectives/selectors.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

constexpr std::uint16_t list_lane = 0;
constexpr std::size_t whole = ~std::size_t{0};

struct Gathering {
  SparseCall args;
  bool streams;      // several parcels, sent as they are ready
  std::size_t most;  // pairs of one message
  bool nonfinite = false;

  Pieces pieces() const { return {args.tensors, args.parcel}; }
  // The tail's: every tensor is one piece.
  Pieces tails() const { return {args.tensors, whole}; }
};

std::size_t most_pairs(const SparseCall& args) {
  std::size_t most = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) most += elected_of(args.spec().density, tensor.count);
  }
  return most;
}

Task<Error> select_and_send(Call& call, Gathering& gathering) {
  const SparseCall& args = gathering.args;
  Selectors selectors(call, args.tensors, gathering.streams);
  Pieces parcel = gathering.pieces();
  ListAddress name{0, list_lane, 0};
  for (Pieces pieces = parcel; !pieces.done();) {
    const Piece piece = pieces.next();
    selectors[piece.tensor].pass(piece.range.begin, piece.range.size);
    if (!piece.ends_parcel || !gathering.streams) continue;
    const ListMessage message = write_lists(call, args, parcel, 0);
    Error error = co_await send_lists_to_all(call, name, message);
    if (error) co_return error;
    co_await call.turn();
    ++name.step;
    parcel = pieces;
  }
  for (Pieces tails = gathering.tails(); !tails.done();) selectors[tails.next().tensor].finish();
  const std::uint32_t flags = found_nonfinite(args) ? ListHead::nonfinite : 0;
  gathering.nonfinite |= flags != 0;
  const ListMessage tail = write_lists(call, args, gathering.tails(), flags);
  co_return co_await send_lists_to_all(call, name, tail);
}

Task<Error> receive_all(Call& call, Gathering& gathering, Pieces parcel, std::uint32_t step) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    ListHead head;
    Error error = co_await receive_lists(call, gathering.args, parcel, {from, list_lane, step},
                                         static_cast<std::size_t>(from), gathering.most, head);
    if (error) co_return error;
    gathering.nonfinite |= (head.flags & ListHead::nonfinite) != 0;
  }
  co_return Error();
}

Task<Error> receive_parcels(Call& call, Gathering& gathering) {
  std::uint32_t step = 0;
  for (Pieces pieces = gathering.pieces(); gathering.streams && !pieces.done(); ++step) {
    Error error = co_await receive_all(call, gathering, pieces, step);
    if (error) co_return error;
    while (!pieces.next().ends_parcel) {
    }
  }
  co_return co_await receive_all(call, gathering, gathering.tails(), step);
}

// In rank order, of each rank what came with a piece, whose run it is, and the tail.
std::size_t find_lists(Call& call, Compressor& compressor, std::size_t run, SparseList* lists) {
  const auto ranks = static_cast<std::size_t>(call.size());
  auto& received = compressor.received(ranks);
  std::size_t n = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const bool own = r == static_cast<std::size_t>(call.rank());
    const PairList& list = own ? compressor.taken() : received[r];
    const std::size_t tail = list.runs() - 1;
    if (run < tail) lists[n++] = list.run(run);
    lists[n++] = list.run(tail);
  }
  return n;
}

void write_results(Call& call, const SparseCall& args) {
  const std::size_t most = 2 * static_cast<std::size_t>(call.size());
  const Scratch memory(call.host_compute(), most * sizeof(SparseList));
  auto* lists = reinterpret_cast<SparseList*>(memory.bytes().data);
  SumWriter sums(call, most);
  Pieces pieces(args.tensors, args.parcel);
  for (const CompressedTensor& tensor : args.tensors) {
    ResultWriter writer(call, tensor);
    std::size_t run = 0;
    for (std::size_t done = 0; done < tensor.count; ++run) {
      const Piece piece = pieces.next();
      const std::size_t n = find_lists(call, *tensor.compressor, run, lists);
      sums.write({lists, n}, args.spec().values, piece.range, writer);
      done += piece.range.size;
    }
    args.conclude(tensor, writer);
  }
}

}  // namespace

Task<Error> allreduce_topk(Call& call, SparseCall args) {
  Pieces pieces(args.tensors, args.parcel);
  while (!pieces.done() && !pieces.next().ends_parcel) {
  }
  Gathering gathering{args, !pieces.done(), most_pairs(args)};
  std::array<Task<Error>, 2> strands{strand(call, select_and_send(call, gathering)),
                                     strand(call, receive_parcels(call, gathering))};
  Error error = co_await when_all(strands);
  if (error) co_return error;
  if (gathering.nonfinite && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    write_results(call, args);
  }
  co_return error;
}

}  // namespace pith
